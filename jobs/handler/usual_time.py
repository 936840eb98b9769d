"""How long calls of a handler usually take in this process.

Owns the mean of the calls that ended, the last ones most.

Invariants: of a handler none of whose calls has ended none is known to take long.
"""

from __future__ import annotations

import math

_WEIGHT = 1 / 64
_TIMES = 3
SHORTEST_LONG_S = 1.0


class UsualTime:
    """Of one handler; added to by several threads, where one addition may get lost."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def add(self, took_s: float) -> None:
        """Adds a call that ended."""
        mean_s = took_s if self._mean_s is None else self._mean_s
        self._mean_s = mean_s + _WEIGHT * (took_s - mean_s)

    @property
    def long_s(self) -> float:
        """From how many seconds on a call takes long: three times as long as usual, a second at least."""
        return math.inf if self._mean_s is None else max(SHORTEST_LONG_S, _TIMES * self._mean_s)
