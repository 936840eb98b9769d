"""What a person sees of a group while it runs, and when it ends.

Owns the sums over the batches and their words.

Threads: batches are reported on Spark's callback thread, the end is said on the main one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakemq.terminal import output

if TYPE_CHECKING:
    from jobs.group.batch_report import BatchReport
    from jobs.group.waiting_retries import WaitingRetries


class ConsumeProgress:
    """The batches of one run.

    Args:
        show: Gets the line after each batch.
        clock: Seconds that never go back.
    """

    def __init__(self, show: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._began: float | None = None
        self._messages = self._retried = self._given_up = self._put_off = 0
        self._left: WaitingRetries | None = None

    @property
    def begun(self) -> bool:
        """Whether the group runs, or has run."""
        return self._began is not None

    def begin(self) -> None:
        """Notes that the group runs from now on."""
        self._began = self._clock()

    def add(self, batch: BatchReport) -> None:
        """Counts a batch and shows the sums."""
        self._messages += batch.messages
        self._retried += batch.retried
        self._given_up += batch.given_up
        self._put_off += batch.put_off
        rate = batch.messages / batch.seconds if batch.seconds > 0 else 0.0
        behind = "" if batch.behind is None else f", {batch.behind:,} behind"
        self._show(f"{self._sums()}; {rate:,.0f} a second{behind}; last batch {batch.seconds:.1f} s")

    def leave(self, left: WaitingRetries) -> None:
        """Notes what the run leaves for a later one."""
        self._left = left

    def summary(self) -> str:
        """All of the run in one line."""
        took = 0.0 if self._began is None else self._clock() - self._began
        return f"{self._sums()} in {took:,.0f} s{self._waiting()}"

    def _waiting(self) -> str:
        if self._left is None:
            return ""
        parked = f"; {self._left.parked:,} are parked behind others" if self._left.parked else ""
        if self._left.first_due_at is None:
            return f"; no retry waits{parked}"
        first = output.moment(round(self._left.first_due_at.timestamp() * 1000))
        return (
            f"; {self._left.messages:,} wait for a retry in a later run, the first is due at {first}{parked}"
        )

    def _sums(self) -> str:
        done = self._messages - self._retried - self._given_up
        return (
            f"{self._messages:,} handled: {done:,} acknowledged, {self._retried:,} to come again, "
            f"{self._given_up:,} given up"
        ) + (f"; {self._put_off:,} times put off to a later batch" if self._put_off else "")
