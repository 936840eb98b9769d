"""What the rows of a function's frame say of a batch's messages.

Owns what becomes of a message with no row, with several, or with a row that is no verdict. Pure.

Invariants: one verdict per message; a frame with a row of no message says nothing of any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from delta_tables.deliveries import ACK, RETRY
from jobs.frames.frame_handler import DELAY, KEY, REASON, VERDICT
from jobs.handler import reasons
from jobs.handler.results import Columns, columns_of
from jobs.handler.verdicts import Outcome, outcome_of
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Verdict

NO_ROW = "the frame has no row for this message"

Key = tuple[Any, ...]


def frame_verdicts(rows: pa.Table, messages: pa.RecordBatch, policy: RetryPolicy) -> Columns:
    """Reads the verdicts of some messages.

    Args:
        rows: KEY, verdict, delay and reason, in any order of rows.
        messages: KEY of each message, which is there once.
        policy: for delays a verdict names.

    Returns:
        Columns of `HandlerResults` in the messages' order; none where every message is acknowledged.

    Raises:
        ValueError: A row is of no message among these.
    """
    where = {key: at for at, key in enumerate(keys_of(messages))}
    times = [0] * messages.num_rows
    others: dict[int, Outcome] = {}
    said = zip(*(rows.column(name).to_pylist() for name in (VERDICT, DELAY, REASON)), strict=True)
    for key, (verdict, delay, reason) in zip(keys_of(rows), said, strict=True):
        at = where.get(key)
        if at is None:
            raise ValueError(f"the frame has a row of no message of the batch: {_shown(key)}")
        times[at] += 1
        if verdict is not None and verdict != ACK:
            others[at] = _outcome(verdict, delay, reason, policy)
    for at, count in enumerate(times):
        if count == 0:
            others[at] = Outcome(RETRY, reason=NO_ROW)
        elif count > 1:
            others[at] = Outcome(RETRY, reason=f"the frame has {count} rows for this message, not one")
    return columns_of(others, messages.num_rows)


def keys_of(rows: pa.Table | pa.RecordBatch) -> Iterator[Key]:
    """Of which message each row speaks."""
    return zip(*(rows.column(name).to_pylist() for name in KEY), strict=True)


def _outcome(verdict: str, delay: str | int | None, reason: str | None, policy: RetryPolicy) -> Outcome:
    try:
        if verdict == RETRY:
            return outcome_of(Verdict.retry(delay, reason=reason), policy)
        return outcome_of(Verdict(verdict, reason=reason), policy)
    except ValueError as error:
        return Outcome(RETRY, reason=reasons.reason_text(str(error)))


def _shown(key: Key) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(KEY, key, strict=True))
