"""Says which message a batch waits for.

Owns when a call that goes on is worth a line, and the line.

Processes: executors; the line goes to the worker's standard error, which `lakemq consume` shows.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping

import pyarrow as pa

SLOW_S = 60.0
"""So long a call goes on before it is named; then twice as long, and so on."""
_NAMED = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")


class SlowCalls:
    """What is said of the calls of one batch of Arrow, a line for each doubling of the time.

    Args:
        messages: Those of a call, by its number; None where it has ended meanwhile.
        timeout_s: How long a call may take.
        say: Gets a line; None: standard error.
        follows: What the line says of the batch.
    """

    def __init__(
        self,
        messages: Callable[[int], pa.RecordBatch | None],
        timeout_s: float,
        say: Callable[[str], None] | None = None,
        *,
        follows: str = "the outcomes of its batch wait for it",
    ) -> None:
        self._messages = messages
        self._timeout_s = timeout_s
        self._say = say or _on_stderr
        self._follows = follows
        self._after_s = SLOW_S

    def look(self, began: Mapping[int, float], now: float) -> None:
        """Names the call that has gone on for longest, and counts the others.

        Args:
            began: Since when which call is under way.
            now: By the same clock, in seconds.
        """
        if not began or now - min(began.values()) < self._after_s:
            return
        oldest = min(began, key=began.__getitem__)
        messages = self._messages(oldest)
        if messages is None:
            return
        others = sum(now - at >= self._after_s for at in began.values()) - 1
        more = f", and {others} other{'s' * (others > 1)} as long" if others else ""
        self._say(
            f"lakemq: a call of the handler has been under way for {now - began[oldest]:.0f} s: "
            f"{named(messages)}{more}; {self._follows} "
            f"(--consume-timeout {self._timeout_s:g} s)"
        )
        while self._after_s <= now - began[oldest]:
            self._after_s *= 2


def named(messages: pa.RecordBatch) -> str:
    """Where the messages of a call are."""
    first = ", ".join(f"{name} {messages.column(name)[0]}" for name in _NAMED)
    return first if messages.num_rows == 1 else f"{first}, the first of {messages.num_rows} messages"


def _on_stderr(line: str) -> None:
    # Where nobody hears it the call is watched all the same.
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
