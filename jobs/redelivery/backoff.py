"""Delays that grow with each attempt, and differ between messages that failed together.

Owns the arithmetic of an exponential backoff with full jitter. Pure but for the numbers it is given to draw.

Processes: built on the driver, drawn from on executors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lakemq.duration import parse_ms

_RANGE = ".."
_MOST_DOUBLINGS = 63


def drawn() -> float:
    """A number from 0 up to 1, of the process that asks.

    A generator that travelled with the task would give the same numbers to each task of each batch.
    """
    return random.random()


@dataclass(frozen=True)
class Backoff:
    """The n-th retry waits any time up to `least_ms` doubled n - 1 times, `most_ms` at the longest.

    Attributes:
        least_ms: the longest the first retry waits.
        most_ms: the longest any retry waits.
        uniform: draws a number from 0 up to 1; a function that pickles.
    """

    least_ms: int
    most_ms: int
    uniform: Callable[[], float] = drawn

    @classmethod
    def parse(cls, text: str, uniform: Callable[[], float] = drawn) -> Backoff:
        """Reads `"1s..10m"`.

        Raises:
            ValueError: it is no range of durations, or one that ends before it begins, or begins with none.
        """
        first, found, last = text.partition(_RANGE)
        if not found:
            raise ValueError(f"{text!r} is not a range: write 1s..10m")
        least_ms, most_ms = parse_ms(first), parse_ms(last)
        if not 0 < least_ms <= most_ms:
            raise ValueError(f"{text!r} has no delays in it: write the shorter one first, as 1s..10m")
        return cls(least_ms, most_ms, uniform)

    def delay_ms(self, attempt: int) -> int:
        """Draws the delay after a failed attempt (1 is the first)."""
        doublings = min(attempt - 1, _MOST_DOUBLINGS)
        return round(self.uniform() * min(self.most_ms, self.least_ms << doublings))
