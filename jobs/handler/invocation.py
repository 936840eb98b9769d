"""Calling a handler on a batch of messages and collecting its verdicts.

Owns the contract with the handler: what it may return, and what an exception means.

Invariants: one bad message never fails the batch, and a batch always yields exactly one verdict per row.

Processes: executors.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ACK, DEAD, RETRY
from jobs.handler import reasons
from jobs.handler.loader import LoadedHandler
from jobs.handler.narrowing import Call, Found, Said, Search, first_slices
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import BatchColumns, DeliveredMessage, Verdict

_Columns = dict[str, pa.Array | None]
_TIME = pa.timestamp("us", "UTC")
_KINDS = pa.array([ACK, RETRY, DEAD])


@dataclass
class HandlerResults:
    """Verdicts of some consecutive rows, as Arrow columns; a None column means null everywhere.

    `verdict` None means that every row is acknowledged: the common case carries no column at all.
    `in_company` and `isolated` (None: nowhere) are those of `narrowing.Found`.
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
    in_company: pa.Array | None = None
    isolated: pa.Array | None = None


@dataclass(frozen=True)
class Before:
    """What is known of a batch's rows before a vectorised handler gets them.

    Attributes:
        again: whether a row was handled before.
        isolated: whether it failed by itself then.
        last_chance: row -> whether RETRY would mean DEAD now.
        cannot_return: row -> whether it cannot be retried at all.
    """

    again: Sequence[bool]
    isolated: Sequence[bool]
    last_chance: Callable[[int], bool]
    cannot_return: Callable[[int], bool]

    @classmethod
    def nothing(cls, rows: int) -> Before:
        """First deliveries, all with attempts left."""
        return cls([False] * rows, [False] * rows, lambda row: False, lambda row: False)


@dataclass(frozen=True)
class _Outcome:
    """The verdict of one row that is not simply acknowledged."""

    verdict: str
    delay_level: int | None = None
    reason: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    error_trace: str | None = None


@dataclass(frozen=True)
class _Made:
    """One call of a vectorised handler: its verdicts, or its failure.

    Attributes:
        started, finished: epoch us.
        verdicts: columns of `HandlerResults`; none where every row is acknowledged.
        failure: of the whole call.
    """

    started: int
    finished: int
    verdicts: _Columns
    failure: _Outcome | None = None


def invoke(
    handler: LoadedHandler, batch: pa.RecordBatch, policy: RetryPolicy, before: Before | None = None
) -> HandlerResults:
    """Runs a handler over a batch.

    Args:
        handler: the user's function.
        batch: messages as the handler sees them (original position, attempt).
        policy: for delays a verdict names.
        before: of the messages, for a vectorised handler.

    Returns:
        One verdict per row of the batch, in its order.
    """
    if handler.vectorised:
        return _invoke_batch(handler.function, batch, policy, before or Before.nothing(batch.num_rows))
    return _invoke_rows(handler.function, batch, policy)


def _invoke_rows(
    handle: Callable[[DeliveredMessage], Any], batch: pa.RecordBatch, policy: RetryPolicy
) -> HandlerResults:
    columns = BatchColumns(batch)
    others: dict[int, _Outcome] = {}
    times = [_now_us()]
    for row in range(batch.num_rows):
        try:
            result = handle(DeliveredMessage(columns, row))
            if result is not None and result is not Verdict.ACK:
                others[row] = _outcome(result, policy)
        # Whatever it raises (sys.exit(), a Rust panic, a cancelled task) is a failure of this message.
        except BaseException as error:  # noqa: BLE001 - a handler is foreign code
            others[row] = _failure(error)
        times.append(_now_us())
    return _with_outcomes(batch.num_rows, times[:-1], times[1:], others)


def _invoke_batch(
    handle: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch, policy: RetryPolicy, before: Before
) -> HandlerResults:
    """Calls a vectorised handler; where it raises, `narrowing` finds the messages it raises for.

    Parts of the batch are handled again meanwhile, as at-least-once allows.
    """

    def call(start: int, rows: int) -> Call[_Made]:
        piece = batch.slice(start, rows)
        started = _now_us()
        try:
            result = handle(piece)
            verdicts = _verdicts(result, rows, policy)
            said = Said.VERDICTS
            if isinstance(result, Verdict) and _kind(result.kind) == RETRY:
                said = Said.RETRY_ALL
        except BaseException as error:  # noqa: BLE001  (as for rows)
            return Call(_Made(started, _now_us(), {}, _failure(error)), Said.RAISED)
        return Call(_Made(started, _now_us(), verdicts), said, _retried(verdicts))

    search = Search(call, last_chance=before.last_chance, cannot_return=before.cannot_return)
    found = search.run(first_slices(before.again, before.isolated), before.isolated)
    return _concat([_results_of(part) for part in found])


def _results_of(found: Found[_Made]) -> HandlerResults:
    """The rows of one result."""
    made, rows = found.result, found.rows
    times = [pa.repeat(pa.scalar(at, _TIME), rows) for at in (made.started, made.finished)]
    results = HandlerResults(rows, *times)
    for name, column in made.verdicts.items():
        setattr(results, name, None if column is None else column.slice(found.at, rows))
    if made.failure is not None:
        results.verdict = pa.repeat(pa.scalar(made.failure.verdict), rows)
        for name in ("error_type", "error_text", "error_trace"):
            setattr(results, name, pa.repeat(pa.scalar(getattr(made.failure, name), pa.string()), rows))
    if found.in_company:
        results.in_company = pa.repeat(pa.scalar(True), rows)
    if found.isolated:
        results.isolated = pa.repeat(pa.scalar(True), rows)
    return results


def _retried(verdicts: _Columns) -> list[int]:
    found: list[int] = []
    if verdicts:
        found = pc.indices_nonzero(pc.equal(verdicts["verdict"], RETRY)).to_pylist()
    return found


def _verdicts(result: Any, rows: int, policy: RetryPolicy) -> _Columns:
    """Reads what a vectorised handler returned: see docs/ledger.md for the shapes it may have."""
    if result is None:
        return {}
    if isinstance(result, Verdict):
        result = [result] * rows
    if isinstance(result, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(result.type):
        return _of_columns(result, None, None, rows, policy)
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        columns = {name: result.column(name) for name in result.schema.names}
    elif isinstance(result, pa.StructArray):
        # flatten(), unlike field(), knows of the nulls of the struct itself.
        names = [result.type[i].name for i in range(result.type.num_fields)]
        columns = dict(zip(names, result.flatten(), strict=True))
    elif isinstance(result, Sequence) and not isinstance(result, (str, bytes)):
        return _of_sequence(result, rows, policy)
    else:
        raise TypeError(f"a vectorised handler returns verdicts, not {type(result).__name__}")
    unknown = columns.keys() - {"verdict", "delay_level", "reason"}
    if unknown or "verdict" not in columns:
        raise TypeError(
            f"verdict columns are verdict, delay_level and reason, not {', '.join(sorted(columns))}"
        )
    return _of_columns(columns["verdict"], columns.get("delay_level"), columns.get("reason"), rows, policy)


def _of_sequence(result: Sequence[Any], rows: int, policy: RetryPolicy) -> _Columns:
    answers = list(result)  # foreign code again: what it gives counts, not what it says of its length
    if len(answers) != rows:
        raise ValueError(f"the handler returned {len(answers)} verdicts for {rows} messages")
    others = {
        row: _outcome(Verdict(verdict) if isinstance(verdict, str) else verdict, policy)
        for row, verdict in enumerate(answers)
        if verdict is not None
        and verdict is not Verdict.ACK
        and not (type(verdict) is str and verdict == ACK)
    }
    return _columns_of(others, rows)


def _of_columns(
    verdict: pa.Array | pa.ChunkedArray,
    delay_level: pa.Array | pa.ChunkedArray | None,
    reason: pa.Array | pa.ChunkedArray | None,
    rows: int,
    policy: RetryPolicy,
) -> _Columns:
    if len(verdict) != rows:
        raise ValueError(f"the handler returned {len(verdict)} verdicts for {rows} messages")
    kinds = pc.fill_null(_flat(verdict, pa.string()), ACK)
    if pc.all(pc.equal(kinds, ACK)).as_py():
        return {}
    known = pc.is_in(kinds, value_set=_KINDS)
    if not pc.all(known).as_py():
        wrong = kinds.filter(pc.invert(known))[0].as_py()
        raise ValueError(f"{wrong!r} is not a verdict: ACK, RETRY or DEAD")
    levels = None
    if delay_level is not None:
        longest = pa.scalar(len(policy.level_ms), pa.int32())
        levels = pc.max_element_wise(pc.min_element_wise(_flat(delay_level, pa.int32()), longest), 1)
        levels = pc.if_else(_flat(pc.is_valid(delay_level), pa.bool_()), levels, None).cast(pa.int32())
    texts = None
    if reason is not None:
        texts = pc.utf8_slice_codeunits(_flat(reason, pa.string()), 0, reasons.MAX_REASON)
    return {"verdict": kinds, "delay_level": levels, "reason": texts}


def _flat(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole.validate(full=True)  # text made from buffers may be no UTF-8, which no reader of the table takes
    return whole.cast(wanted)


def _outcome(verdict: Any, policy: RetryPolicy) -> _Outcome:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"a handler returns None or a Verdict, not {type(verdict).__name__}")
    level = None
    # A Verdict holds what it was made with: only what the columns take goes on.
    if verdict.delay_level is not None:
        level = policy.clamp(operator.index(verdict.delay_level))
    elif verdict.delay_ms is not None:
        level = policy.level_of_delay(operator.index(verdict.delay_ms))
    return _Outcome(_kind(verdict.kind), level, reasons.reason_text(verdict.reason))


def _kind(said: Any) -> str:
    """The plain word of a verdict's kind.

    A subclass of str (an enum's member) may compare and print as it likes; the ledger's readers know the
    three words only, and a row with any other would be a message nobody looks at again.
    """
    plain = str.__str__(said) if isinstance(said, str) else None
    if plain not in (ACK, RETRY, DEAD):
        raise ValueError(f"{said!r} is not a verdict: ACK, RETRY or DEAD")
    return plain


def _failure(error: BaseException) -> _Outcome:
    return _Outcome(
        RETRY,
        error_type=reasons.error_type(error),
        error_text=reasons.error_text(error),
        error_trace=reasons.error_trace(error),
    )


def _with_outcomes(
    rows: int, started: list[int], finished: list[int], others: dict[int, _Outcome]
) -> HandlerResults:
    times = [pa.array(at, pa.int64()).cast(_TIME) for at in (started, finished)]
    return HandlerResults(rows, *times, **_columns_of(others, rows))


def _columns_of(others: dict[int, _Outcome], rows: int) -> _Columns:
    """The verdicts of so many rows; none where every row is acknowledged."""
    if not others:
        return {}

    def column(name: str, kind: pa.DataType, otherwise: Any = None) -> pa.Array:
        values = [otherwise] * rows
        for row, outcome in others.items():
            values[row] = getattr(outcome, name)
        return pa.array(values, kind)

    return {name: column(name, *empty) for name, empty in _VALUES.items()}


_VALUES = {
    "verdict": (pa.string(), ACK),
    "delay_level": (pa.int32(), None),
    "reason": (pa.string(), None),
    "error_type": (pa.string(), None),
    "error_text": (pa.string(), None),
    "error_trace": (pa.string(), None),
}
_MARKS = {"in_company": (pa.bool_(), False), "isolated": (pa.bool_(), False)}


def _concat(pieces: list[HandlerResults]) -> HandlerResults:
    if len(pieces) == 1:
        return pieces[0]

    def joined(name: str, kind: pa.DataType, otherwise: Any) -> pa.Array | None:
        parts = [getattr(piece, name) for piece in pieces]
        if all(part is None for part in parts):
            return None
        return pa.concat_arrays(
            [
                pa.repeat(pa.scalar(otherwise, kind), piece.rows) if part is None else part
                for piece, part in zip(pieces, parts, strict=True)
            ]
        )

    return HandlerResults(
        sum(piece.rows for piece in pieces),
        pa.concat_arrays([piece.started_at for piece in pieces]),
        pa.concat_arrays([piece.finished_at for piece in pieces]),
        **{name: joined(name, *empty) for name, empty in (_VALUES | _MARKS).items()},
    )


def _now_us() -> int:
    return time.time_ns() // 1_000
