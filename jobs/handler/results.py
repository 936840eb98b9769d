"""Verdicts of consecutive rows as Arrow columns.

Owns the columns' types, and that a batch in which every row is acknowledged carries none.

Processes: executors, and the processes handlers are isolated in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delta_tables.deliveries import ACK
from delta_tables.table import OUTBOX
from jobs.handler.verdicts import Outcome

TIME = pa.timestamp("us", "UTC")
Columns = dict[str, pa.Array | None]
CallMade = tuple[int | None, int, Outcome | None]


@dataclass
class HandlerResults:
    """Verdicts of some consecutive rows, as Arrow columns; a None column means null everywhere.

    `verdict` None means that every row is acknowledged, sends and writes nothing: the common case carries no
    column. `table_rows` is packed (table_rows.py).
    `in_company` and `isolated` (None: nowhere) are those of `narrowing.Found`; `put_off` marks rows of which
    nothing is said yet, `found` those whose call was made by an earlier task.
    """

    rows: int
    started_at: pa.Array
    finished_at: pa.Array
    verdict: pa.Array | None = None
    delay_level: pa.Array | None = None
    reason: pa.Array | None = None
    error_type: pa.Array | None = None
    error_text: pa.Array | None = None
    error_trace: pa.Array | None = None
    outbox: pa.Array | None = None
    table_rows: pa.Array | None = None
    in_company: pa.Array | None = None
    isolated: pa.Array | None = None
    put_off: pa.Array | None = None
    found: pa.Array | None = None

    def take(self, rows: pa.Array) -> HandlerResults:
        """The results of some rows, in their order."""
        columns = {name: column for name, column in vars(self).items() if name != "rows"}
        taken = {name: None if column is None else column.take(rows) for name, column in columns.items()}
        return HandlerResults(len(rows), **taken)

    def replaced(self, rows: Sequence[int], others: HandlerResults) -> HandlerResults:
        """These results with others in the place of some rows'."""
        place_of = dict(enumerate(range(self.rows)))
        place_of.update((row, self.rows + place) for place, row in enumerate(rows))
        return concat([self, others]).take(pa.array(place_of.values(), pa.int64()))


def with_outcomes(
    rows: int, started: Sequence[int | None], finished: Sequence[int], others: dict[int, Outcome]
) -> HandlerResults:
    """Results of so many rows: their times (epoch us), and the outcomes of all not simply acknowledged."""
    times = [pa.array(at, pa.int64()).cast(TIME) for at in (started, finished)]
    return HandlerResults(rows, *times, **columns_of(others, rows))


def of_calls(
    rows: Sequence[int], made: Mapping[int, CallMade], otherwise: Outcome, now_us: int
) -> HandlerResults:
    """Results of the calls that were made with some rows.

    Args:
        rows: The rows, in the order of their results.
        made: The start, end (epoch us) and outcome (None is ACK) of each call, by its row.
        otherwise: The outcome of the rows that have no call.
        now_us: When that was decided.
    """
    not_called: CallMade = None, now_us, otherwise
    found = [made.get(row, not_called) for row in rows]
    others = {place: outcome for place, (_, _, outcome) in enumerate(found) if outcome is not None}
    results = with_outcomes(
        len(rows), [began for began, _, _ in found], [ended for _, ended, _ in found], others
    )
    if any(outcome.put_off for outcome in others.values()):
        results.put_off = pa.array([row in others and others[row].put_off for row in range(len(rows))])
    return results


def columns_of(others: dict[int, Outcome], rows: int) -> Columns:
    """The verdicts of so many rows; none where every row is acknowledged."""
    if not others:
        return {}

    def column(name: str, kind: pa.DataType, otherwise: Any = None) -> pa.Array:
        values = [otherwise] * rows
        for row, outcome in others.items():
            values[row] = getattr(outcome, name)
        return pa.array(values, kind)

    columns: Columns = {name: column(name, *empty) for name, empty in _VALUES.items()}
    for name, empty in _CARRIED.items():
        carries = any(getattr(outcome, name) for outcome in others.values())
        columns[name] = column(name, *empty) if carries else None
    return columns


_VALUES = {
    "verdict": (pa.string(), ACK),
    "delay_level": (pa.int32(), None),
    "reason": (pa.string(), None),
    "error_type": (pa.string(), None),
    "error_text": (pa.string(), None),
    "error_trace": (pa.string(), None),
}
_MARKS = {name: (pa.bool_(), False) for name in ("in_company", "isolated", "put_off", "found")}
_CARRIED = {"outbox": (OUTBOX, None), "table_rows": (pa.binary(), None)}


def by_rows(parts: Sequence[tuple[Sequence[int], HandlerResults]]) -> HandlerResults:
    """Results of all rows of a batch, in its order, from those of some each."""
    place_of = {row: place for place, row in enumerate(row for rows, _ in parts for row in rows)}
    order = pa.array([place_of[row] for row in range(len(place_of))], pa.int64())
    return concat([results for _, results in parts]).take(order)


def concat(pieces: list[HandlerResults]) -> HandlerResults:
    """Results of consecutive pieces as one."""
    if len(pieces) == 1:
        return pieces[0]

    def joined(name: str, kind: pa.DataType, otherwise: Any) -> pa.Array | None:
        parts = [getattr(piece, name) for piece in pieces]
        if all(part is None for part in parts):
            return None
        return pa.concat_arrays(
            [
                _constant(otherwise, kind, piece.rows) if part is None else part
                for piece, part in zip(pieces, parts, strict=True)
            ]
        )

    return HandlerResults(
        sum(piece.rows for piece in pieces),
        pa.concat_arrays([piece.started_at for piece in pieces]),
        pa.concat_arrays([piece.finished_at for piece in pieces]),
        **{name: joined(name, *empty) for name, empty in (_VALUES | _MARKS | _CARRIED).items()},
    )


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
