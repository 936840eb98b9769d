"""How long calls of a handler usually take in this process.

Owns the measure: the median of the calls of each batch, the last batches most. A step of the clock in the
middle of a call does not count, and neither do the few that take long by far.

Invariants: while no call has ended, one takes long that takes as long as its batch may. What calls took that
went on behind their batch is a guess, and counts for nothing where a call of a batch has ended.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

_WEIGHT = 1 / 4
_TIMES = 3
SHORTEST_LONG_S = 1.0


class UsualTime:
    """Of one handler."""

    def __init__(self) -> None:
        self._usual_s: float | None = None
        self._guessed_s: float | None = None

    def learn(self, took_us: Iterable[int]) -> None:
        """Takes how long the calls of a batch took that have ended."""
        of_the_batch = _median_s(took_us)
        if of_the_batch is not None:
            before = of_the_batch if self._usual_s is None else self._usual_s
            self._usual_s = before + _WEIGHT * (of_the_batch - before)

    def guess(self, took_us: int) -> None:
        """Takes how long a call took that its batch did not wait for."""
        self._guessed_s = took_us / 1_000_000

    def long_s(self, took_us: Iterable[int] = (), *, unknown_s: float = math.inf) -> float:
        """From how many seconds on a call takes long: three times as long as usual, a second at least.

        Args:
            took_us: How long calls of the present batch took that have ended: what is usual there is.
            unknown_s: The answer where none has ended, here or in a batch before.
        """
        known = [usual for usual in (self._usual_s, _median_s(took_us)) if usual is not None]
        if not known and self._guessed_s is not None:
            known = [self._guessed_s]
        return max(SHORTEST_LONG_S, _TIMES * max(known)) if known else unknown_s


def _median_s(took_us: Iterable[int]) -> float | None:
    took = list(took_us)
    return statistics.median(took) / 1_000_000 if took else None
