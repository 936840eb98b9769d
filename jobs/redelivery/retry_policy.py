"""When a failed message comes again, and when it is given up.

Owns the arithmetic of attempts and delay levels. No Spark, no broker.

Invariants: the reactions job reads the decision from the ledger's row (verdict), it never decides again.

Processes: built on the driver from the broker's delay levels, used on executors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.redelivery.backoff import Backoff, drawn
from lakemq.duration import format_ms, parse_ms
from store_native.errors import LakeMQError, from_code

DEFAULT_MAX_RECONSUME_TIMES = 16
_FIRST_DEFAULT_LEVEL = 3


@dataclass(frozen=True)
class RetryPolicy:
    """Delays of a group's retries.

    Attributes:
        max_reconsume_times: how often a message comes back before it is given up.
        delay_levels: delay level of the first, second, ... retry; the last one repeats.
        level_ms: the store's delay levels in ms, level 1 first.
        backoff: draws the delays instead, when given.
    """

    max_reconsume_times: int
    delay_levels: tuple[int, ...]
    level_ms: tuple[int, ...]
    backoff: Backoff | None = None

    @classmethod
    def of(
        cls,
        retry_delays: str | None,
        level_ms: Sequence[int],
        max_reconsume_times: int,
        retry_backoff: str | None = None,
        uniform: Callable[[], float] = drawn,
        *,
        shortest: bool = False,
    ) -> RetryPolicy:
        """Reads `--retry-delays` or `--retry-backoff` against the store's delay levels.

        Args:
            retry_delays: delays of the retries in order, `"10s 30s 1m"` or `"10s,30s,1m"`; None for
                RocketMQ's own, level 3 and up.
            level_ms: the store's delay levels (`client.cluster()["delay_levels_ms"]`).
            max_reconsume_times: the most retries.
            retry_backoff: shortest and longest delay of an exponential backoff, `"1s..10m"`.
            uniform: draws a number from 0 up to 1 for it.
            shortest: the shortest level each time, in the place of RocketMQ's own.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL for a delay the store has no level for, or both kinds of delays.
        """
        if max_reconsume_times < 0:
            raise from_code("ARGUMENT_ILLEGAL", "--max-reconsume-times is 0 or more")
        if not level_ms:
            raise from_code("ARGUMENT_ILLEGAL", "the broker has no delay levels, so nothing can be retried")
        if retry_delays is not None and retry_backoff is not None:
            raise from_code("ARGUMENT_ILLEGAL", "--retry-delays and --retry-backoff: give one of the two")
        if retry_delays is None:
            first = min(_FIRST_DEFAULT_LEVEL, len(level_ms))
            backoff = None if retry_backoff is None else _backoff(retry_backoff, level_ms, uniform)
            usual = tuple(range(first, len(level_ms) + 1))
            policy = cls(max_reconsume_times, usual, tuple(level_ms), backoff)
            return replace(policy, delay_levels=(policy.shortest_level,)) if shortest else policy
        levels = tuple(_level_of(delay, level_ms) for delay in retry_delays.replace(",", " ").split())
        if not levels:
            raise from_code("ARGUMENT_ILLEGAL", '--retry-delays is empty: write "10s 30s 1m"')
        return cls(max_reconsume_times, levels, tuple(level_ms))

    @property
    def shortest_level(self) -> int:
        """The store's level that waits least."""
        return self.level_of_delay(0)

    def level_of_attempt(self, attempt: int) -> int:
        """The delay level after a failed attempt (1 is the first)."""
        if self.backoff is not None:
            return self.level_of_delay(self.backoff.delay_ms(attempt))
        return self.delay_levels[min(attempt, len(self.delay_levels)) - 1]

    def level_of_delay(self, delay_ms: int) -> int:
        """The first level that waits at least so long, else the longest."""
        by_length = sorted(range(len(self.level_ms)), key=lambda index: self.level_ms[index])
        found = bisect_left([self.level_ms[index] for index in by_length], delay_ms)
        return by_length[min(found, len(by_length) - 1)] + 1

    def clamp(self, level: int) -> int:
        """A level the store has: above the last clamps, as the store itself does."""
        return max(1, min(level, len(self.level_ms)))


def _level_of(delay: str, level_ms: Sequence[int]) -> int:
    try:
        wanted = parse_ms(delay)
    except ValueError as error:
        raise from_code("ARGUMENT_ILLEGAL", f"--retry-delays: {error}") from None
    if wanted not in level_ms:
        raise _no_level("--retry-delays", delay, level_ms)
    return list(level_ms).index(wanted) + 1


def _backoff(text: str, level_ms: Sequence[int], uniform: Callable[[], float]) -> Backoff:
    try:
        backoff = Backoff.parse(text, uniform)
    except ValueError as error:
        raise from_code("ARGUMENT_ILLEGAL", f"--retry-backoff: {error}") from None
    if backoff.most_ms not in level_ms:  # a longer level would be waited for
        raise _no_level("--retry-backoff", format_ms(backoff.most_ms), level_ms)
    return backoff


def _no_level(option: str, delay: str, level_ms: Sequence[int]) -> LakeMQError:
    known = " ".join(format_ms(ms) for ms in level_ms)
    return from_code("ARGUMENT_ILLEGAL", f"{option}: {delay} is not a delay level of this store ({known})")
