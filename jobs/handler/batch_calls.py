"""Calls of a handler of whole batches.

Owns what is known of a batch's rows before its calls, and the results of the search for the rows it raises
for (narrowing.py).

Invariants: one verdict per row; parts of a batch may be handled again meanwhile, as at-least-once allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import RETRY
from jobs.handler.batch_verdicts import batch_verdicts
from jobs.handler.narrowing import Call, Found, Said, Search, first_slices
from jobs.handler.results import TIME, Columns, HandlerResults, concat
from jobs.handler.verdicts import Outcome, failure, kind_of, tell
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import NO_SPANS, CallSpans
from lakemq.handler import Verdict


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
class Made:
    """One call of a vectorised handler: its verdicts, or its failure.

    Attributes:
        started, finished: epoch us.
        verdicts: columns of `HandlerResults`; none where every row is acknowledged.
        failure: of the whole call.
    """

    started: int
    finished: int
    verdicts: Columns
    failure: Outcome | None = None


CallBatch = Callable[[pa.RecordBatch], Call[Made]]


def call_batch(
    handle: Callable[[pa.RecordBatch], Any],
    piece: pa.RecordBatch,
    policy: RetryPolicy,
    spans: CallSpans = NO_SPANS,
) -> Call[Made]:
    """Calls a vectorised handler once; what it raises is the call's result."""
    started = _now_us()
    with spans.of_batch(piece) as span:
        try:
            result = handle(piece)
            verdicts = batch_verdicts(result, piece.num_rows, policy)
            said = Said.VERDICTS
            if isinstance(result, Verdict) and kind_of(result.kind) == RETRY:
                said = Said.RETRY_ALL
        except BaseException as error:  # noqa: BLE001 - a handler is foreign code
            failed = failure(error)
            tell(span, failed)
            return Call(Made(started, _now_us(), {}, failed), Said.RAISED)
    return Call(Made(started, _now_us(), verdicts), said, _retried(verdicts))


def handle_batch(batch: pa.RecordBatch, call: CallBatch, before: Before) -> HandlerResults:
    """Has a batch handled; where a call raises, the search finds the messages it raises for.

    Args:
        batch: messages as the handler sees them.
        call: makes one call, see `call_batch`.
        before: what is known of the rows.

    Returns:
        One verdict per row of the batch, in its order.
    """
    search = Search(
        lambda start, rows: call(batch.slice(start, rows)),
        last_chance=before.last_chance,
        cannot_return=before.cannot_return,
    )
    found = search.run(first_slices(before.again, before.isolated), before.isolated)
    return concat([_results_of(part) for part in found])


def _results_of(found: Found[Made]) -> HandlerResults:
    """The rows of one result."""
    made, rows = found.result, found.rows
    times = [pa.repeat(pa.scalar(at, TIME), rows) for at in (made.started, made.finished)]
    results = HandlerResults(rows, *times)
    for name, column in made.verdicts.items():
        setattr(results, name, None if column is None else column.slice(found.at, rows))
    if made.failure is not None:
        results.verdict = pa.repeat(pa.scalar(made.failure.verdict), rows)
        for name in ("reason", "error_type", "error_text", "error_trace"):
            setattr(results, name, pa.repeat(pa.scalar(getattr(made.failure, name), pa.string()), rows))
    if found.in_company:
        results.in_company = pa.repeat(pa.scalar(True), rows)
    if found.isolated:
        results.isolated = pa.repeat(pa.scalar(True), rows)
    return results


def _retried(verdicts: Columns) -> list[int]:
    found: list[int] = []
    if verdicts:
        found = pc.indices_nonzero(pc.equal(verdicts["verdict"], RETRY)).to_pylist()
    return found


def _now_us() -> int:
    return time.time_ns() // 1_000
