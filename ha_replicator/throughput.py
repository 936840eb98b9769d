"""How fast a slave takes the log.

Owns what it had reported at some moments of the last seconds. Its link notes, the broker's status asks.

Threads: the driver's notes; others read.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
_STEP_S = 1.0


class Throughput:
    """Of one slave; what it reports first it had before."""

    def __init__(self) -> None:
        self._last = 0
        self._marks: deque[tuple[float, int]] = deque(maxlen=int(WINDOW_S / _STEP_S) + 2)

    def note(self, offset: int, now: float) -> None:
        """It reported the log up to there, at a time in seconds that never goes back."""
        self._last = offset
        if not self._marks or now - self._marks[-1][0] >= _STEP_S:
            self._marks.append((now, offset))

    def bytes_per_s(self, now: float) -> float:
        """What it reported in the last :data:`WINDOW_S`, or since it follows, in bytes a second."""
        recent = (mark for mark in [*self._marks] if mark[0] >= now - WINDOW_S)
        since, offset = next(recent, (now, self._last))
        return (self._last - offset) / max(now - since, _STEP_S)
