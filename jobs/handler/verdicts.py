"""What a handler said of one message.

Owns the contract with the handler: what a verdict may hold, and what an exception means.

Invariants: what is no verdict is refused with words for the ledger; what is one is plain data. What it
sends carries the call's span on.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from delta_tables.deliveries import ACK, DEAD, PARKED, RETRY
from jobs.handler import reasons
from jobs.handler.outgoing import Plain, plain_messages
from jobs.handler.table_rows import plain_rows
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import carried_on
from jobs.tracing.current_span import CurrentSpan
from lakemq.handler import Verdict

_ACKNOWLEDGED = {"lakemq.verdict": ACK}

WORKER_DIED = "WorkerDied"
"""The error of a call that ended its process."""
CONSUME_TIMEOUT = "ConsumeTimeout"
"""The error of a call that was given up."""


@dataclass(frozen=True)
class Outcome:
    """The verdict of one row that is not simply acknowledged; one that sends or writes may be.

    `table_rows` is packed (table_rows.py). `put_off` where it says nothing of the row.
    """

    verdict: str
    delay_level: int | None = None
    reason: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    error_trace: str | None = None
    outbox: tuple[Plain, ...] | None = None
    table_rows: bytes | None = None
    put_off: bool = False

    @property
    def carries(self) -> bool:
        """Whether it sends or writes."""
        return self.outbox is not None or self.table_rows is not None


NOT_CALLED = Outcome(PARKED)
"""Of a row that waits for one before it."""
PUT_OFF = Outcome(RETRY, reason="put off: its batch took too long, no call had begun", put_off=True)
"""Of a row whose call had not begun when its task's time was up."""
GOES_ON = Outcome(RETRY, reason="put off: its batch took too long, its call goes on", put_off=True)
"""Of a row whose call was still under way then: what it comes to is told by a later delivery."""


def outcome_of(verdict: Any, policy: RetryPolicy) -> Outcome:
    """What a verdict says of its row.

    Raises:
        TypeError, ValueError: It is no verdict, or holds what is none.
    """
    if not isinstance(verdict, Verdict):
        raise TypeError(f"a handler returns None or a Verdict, not {type(verdict).__name__}")
    level = None
    # A Verdict holds what it was made with: only what the columns take goes on.
    if verdict.delay_level is not None:
        level = policy.clamp(operator.index(verdict.delay_level))
    elif verdict.delay_ms is not None:
        level = policy.level_of_delay(operator.index(verdict.delay_ms))
    kind = kind_of(verdict.kind)
    outbox = plain_messages(verdict.send, carried_on) or None
    if outbox is not None and kind != ACK:
        raise ValueError(f"only a verdict that acknowledges sends messages, not {kind}")
    rows = plain_rows(verdict.rows)
    if rows is not None and kind != ACK:
        raise ValueError(f"only a verdict that acknowledges writes rows, not {kind}")
    return Outcome(kind, level, reasons.reason_text(verdict.reason), outbox=outbox, table_rows=rows)


def kind_of(said: Any) -> str:
    """The plain word of a verdict's kind.

    A subclass of str (an enum's member) may compare and print as it likes; the ledger's readers know the
    three words only, and a row with any other would be a message nobody looks at again.
    """
    plain = str.__str__(said) if isinstance(said, str) else None
    if plain not in (ACK, RETRY, DEAD):
        raise ValueError(f"{said!r} is not a verdict: ACK, RETRY or DEAD")
    return plain


def failure(error: BaseException) -> Outcome:
    """What an exception says of its row."""
    return Outcome(
        RETRY,
        error_type=reasons.error_type(error),
        error_text=reasons.error_text(error),
        error_trace=reasons.error_trace(error),
    )


def worker_died(how: str | None = None) -> Outcome:
    """What the end of the process that made a call says of its row.

    Args:
        how: How it ended, where that is known.
    """
    text = "worker died" if how is None else f"worker died ({how})"
    return Outcome(RETRY, reason=text, error_type=WORKER_DIED, error_text=text)


def timed_out(timeout_s: float) -> Outcome:
    """The outcome of a call that was given up."""
    text = f"the handler did not return within {timeout_s:g} s (consume timeout)"
    return Outcome(RETRY, reason=text, error_type=CONSUME_TIMEOUT, error_text=text)


def tell(span: CurrentSpan, outcome: Outcome | None) -> None:
    """Says in the span of a call what the call came to; None is ACK."""
    if outcome is None:
        span.put(_ACKNOWLEDGED)
        return
    span.put({"lakemq.verdict": outcome.verdict})
    if outcome.reason is not None:
        span.put({"lakemq.reason": outcome.reason})
    if outcome.error_type is not None:
        span.fail(outcome.error_type, outcome.error_text or "", outcome.error_trace or "")
