"""Calling a handler on a batch of messages and collecting its verdicts.

Owns the contract with the handler: what it may return, and what an exception means. Never breaks: one
bad message never fails the batch, and a batch always yields exactly one verdict per row. Runs on
executors, called by `outcomes` once per Arrow batch.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ACK, DEAD, RETRY
from jobs.handler_loader import LoadedHandler
from jobs.retry_policy import RetryPolicy
from lakemq.handler import BatchColumns, DeliveredMessage, Verdict

MAX_ERROR_TEXT = 2_000
MAX_ERROR_TRACE = 8_000
_TIME = pa.timestamp("us", "UTC")
_KINDS = pa.array([ACK, RETRY, DEAD])


@dataclass
class Judged:
    """Verdicts of some consecutive rows, as Arrow columns; a None column means null everywhere.

    `verdict` None means that every row is acknowledged: the common case carries no column at all.
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


@dataclass(frozen=True)
class _Outcome:
    """The verdict of one row that is not simply acknowledged."""

    kind: str
    delay_level: int | None = None
    reason: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    error_trace: str | None = None


def judge(handler: LoadedHandler, batch: pa.RecordBatch, policy: RetryPolicy) -> Judged:
    """Runs a handler over a batch.

    Args:
        handler: the user's function.
        batch: messages as the handler sees them (original position, attempt).
        policy: for delays a verdict names.

    Returns:
        One verdict per row of the batch, in its order.
    """
    if handler.vectorised:
        return _judge_batch(handler.function, batch, policy)
    return _judge_rows(handler.function, batch, policy)


def _judge_rows(
    handle: Callable[[DeliveredMessage], Any], batch: pa.RecordBatch, policy: RetryPolicy
) -> Judged:
    columns = BatchColumns(batch)
    others: dict[int, _Outcome] = {}
    times = [_now_us()]
    for row in range(batch.num_rows):
        try:
            result = handle(DeliveredMessage(columns, row))
            if result is not None and result is not Verdict.ACK:
                others[row] = _outcome(result, policy)
        # A handler is foreign code: whatever it raises, sys.exit() too, is a failure of this message.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            others[row] = _failure(error)
        times.append(_now_us())
    return _with_outcomes(batch.num_rows, times[:-1], times[1:], others)


def _judge_batch(
    handle: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch, policy: RetryPolicy
) -> Judged:
    """Calls a vectorised handler; when it raises, halves the batch until the bad rows stand alone.

    The halves are handled again, as at-least-once allows. A handler that fails whatever it gets (its
    database is down, its result has the wrong shape) is not called once per row: after a bounded
    number of failures the slices that still fail become RETRY as a whole.
    """
    failures_left = 8 + 4 * batch.num_rows.bit_length()
    pieces: list[Judged] = []
    waiting = [(0, batch.num_rows)]
    while waiting:
        start, rows = waiting.pop()
        piece = batch.slice(start, rows)
        started = _now_us()
        try:
            judged = _verdicts(handle(piece), rows, policy)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (as for rows)
            failures_left -= 1
            if rows > 1 and failures_left > 0:
                half = rows // 2
                waiting += [(start + half, rows - half), (start, half)]
                continue
            failure = _failure(error)
            judged = _with_outcomes(
                rows, [started] * rows, [started] * rows, dict.fromkeys(range(rows), failure)
            )
        judged.started_at = pa.repeat(pa.scalar(started, _TIME), rows)
        judged.finished_at = pa.repeat(pa.scalar(_now_us(), _TIME), rows)
        pieces.append(judged)
    return pieces[0] if len(pieces) == 1 else _concat(pieces)


def _verdicts(result: Any, rows: int, policy: RetryPolicy) -> Judged:
    """Reads what a vectorised handler returned: see docs/ledger.md for the shapes it may have."""
    untimed = pa.nulls(rows, _TIME)
    if result is None:
        return Judged(rows, untimed, untimed)
    if isinstance(result, Verdict):
        result = [result] * rows
    if isinstance(result, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(result.type):
        return _of_columns(result, None, None, rows, policy)
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        columns = {name: result.column(name) for name in result.schema.names}
    elif isinstance(result, pa.StructArray):
        columns = {result.type[i].name: result.field(i) for i in range(result.type.num_fields)}
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


def _of_sequence(result: Sequence[Any], rows: int, policy: RetryPolicy) -> Judged:
    if len(result) != rows:
        raise ValueError(f"the handler returned {len(result)} verdicts for {rows} messages")
    others = {
        row: _outcome(Verdict(verdict) if isinstance(verdict, str) else verdict, policy)
        for row, verdict in enumerate(result)
        if verdict is not None and verdict is not Verdict.ACK and verdict != ACK
    }
    untimed = [0] * rows
    return _with_outcomes(rows, untimed, untimed, others)


def _of_columns(
    verdict: pa.Array | pa.ChunkedArray,
    delay_level: pa.Array | pa.ChunkedArray | None,
    reason: pa.Array | pa.ChunkedArray | None,
    rows: int,
    policy: RetryPolicy,
) -> Judged:
    if len(verdict) != rows:
        raise ValueError(f"the handler returned {len(verdict)} verdicts for {rows} messages")
    kinds = pc.fill_null(_flat(verdict, pa.string()), ACK)
    untimed = pa.nulls(rows, _TIME)
    if pc.all(pc.equal(kinds, ACK)).as_py():
        return Judged(rows, untimed, untimed)
    known = pc.is_in(kinds, value_set=_KINDS)
    if not pc.all(known).as_py():
        wrong = kinds.filter(pc.invert(known))[0].as_py()
        raise ValueError(f"{wrong!r} is not a verdict: ACK, RETRY or DEAD")
    levels = None
    if delay_level is not None:
        longest = pa.scalar(len(policy.level_ms), pa.int32())
        levels = pc.max_element_wise(pc.min_element_wise(_flat(delay_level, pa.int32()), longest), 1)
        levels = pc.if_else(_flat(pc.is_valid(delay_level), pa.bool_()), levels, None).cast(pa.int32())
    reasons = None if reason is None else _flat(reason, pa.string())
    return Judged(rows, untimed, untimed, verdict=kinds, delay_level=levels, reason=reasons)


def _flat(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(wanted)


def _outcome(verdict: Any, policy: RetryPolicy) -> _Outcome:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"a handler returns None or a Verdict, not {type(verdict).__name__}")
    level = None
    if verdict.delay_level is not None:
        level = policy.clamp(verdict.delay_level)
    elif verdict.delay_ms is not None:
        level = policy.level_of_delay(verdict.delay_ms)
    if verdict.kind not in (ACK, RETRY, DEAD):
        raise ValueError(f"{verdict.kind!r} is not a verdict: ACK, RETRY or DEAD")
    return _Outcome(verdict.kind, level, verdict.reason)


def _failure(error: BaseException) -> _Outcome:
    # The first frames are ours; the handler's own, and where it raised, stand at the end.
    trace = "".join(traceback.format_exception(error))
    return _Outcome(
        RETRY,
        error_type=type(error).__name__,
        error_text=_storable(str(error))[:MAX_ERROR_TEXT],
        error_trace=_storable(trace)[-MAX_ERROR_TRACE:],
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _with_outcomes(rows: int, started: list[int], finished: list[int], others: dict[int, _Outcome]) -> Judged:
    judged = Judged(
        rows, pa.array(started, pa.int64()).cast(_TIME), pa.array(finished, pa.int64()).cast(_TIME)
    )
    if not others:
        return judged

    def column(name: str, kind: pa.DataType, otherwise: Any = None) -> pa.Array:
        values = [otherwise] * rows
        for row, outcome in others.items():
            values[row] = getattr(outcome, name)
        return pa.array(values, kind)

    judged.verdict = column("kind", pa.string(), ACK)
    judged.delay_level = column("delay_level", pa.int32())
    judged.reason = column("reason", pa.string())
    judged.error_type = column("error_type", pa.string())
    judged.error_text = column("error_text", pa.string())
    judged.error_trace = column("error_trace", pa.string())
    return judged


def _concat(pieces: list[Judged]) -> Judged:
    def joined(name: str, kind: pa.DataType, otherwise: Any = None) -> pa.Array:
        parts = [getattr(piece, name) for piece in pieces]
        return pa.concat_arrays(
            [
                pa.repeat(pa.scalar(otherwise, kind), piece.rows) if part is None else part
                for piece, part in zip(pieces, parts, strict=True)
            ]
        )

    return Judged(
        sum(piece.rows for piece in pieces),
        joined("started_at", _TIME),
        joined("finished_at", _TIME),
        joined("verdict", pa.string(), ACK),
        joined("delay_level", pa.int32()),
        joined("reason", pa.string()),
        joined("error_type", pa.string()),
        joined("error_text", pa.string()),
        joined("error_trace", pa.string()),
    )


def _now_us() -> int:
    return time.time_ns() // 1_000
