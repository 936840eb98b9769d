"""When a failed message comes again, and when it is given up.

Owns the arithmetic of attempts and delay levels. Pure: no Spark, no broker.

Invariants: the retry and the dead_letter job read the decision from the ledger's row (verdict), they never
decide again.

Processes: built on the driver from the broker's delay levels, used on executors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from lakemq.duration import format_ms, parse_ms
from store_native.errors import from_code

DEFAULT_MAX_RECONSUME_TIMES = 16
_FIRST_DEFAULT_LEVEL = 3


@dataclass(frozen=True)
class RetryPolicy:
    """Delays of a group's retries.

    Attributes:
        max_reconsume_times: how often a message comes back before it is given up.
        delay_levels: delay level of the first, second, ... retry; the last one repeats.
        level_ms: the store's delay levels in ms, level 1 first.
    """

    max_reconsume_times: int
    delay_levels: tuple[int, ...]
    level_ms: tuple[int, ...]

    @classmethod
    def of(cls, retry_delays: str | None, level_ms: Sequence[int], max_reconsume_times: int) -> RetryPolicy:
        """Reads `--retry-delays` against the store's delay levels.

        Args:
            retry_delays: delays of the retries in order, `"10s 30s 1m"`; None for RocketMQ's own,
                level 3 and up.
            level_ms: the store's delay levels (`client.cluster()["delay_levels_ms"]`).
            max_reconsume_times: the most retries.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL for a delay the store has no level for.
        """
        if max_reconsume_times < 0:
            raise from_code("ARGUMENT_ILLEGAL", "--max-reconsume-times is 0 or more")
        if not level_ms:
            raise from_code("ARGUMENT_ILLEGAL", "the broker has no delay levels, so nothing can be retried")
        if retry_delays is None:
            first = min(_FIRST_DEFAULT_LEVEL, len(level_ms))
            return cls(max_reconsume_times, tuple(range(first, len(level_ms) + 1)), tuple(level_ms))
        levels = tuple(_level_of(delay, level_ms) for delay in retry_delays.split())
        if not levels:
            raise from_code("ARGUMENT_ILLEGAL", '--retry-delays is empty: write "10s 30s 1m"')
        return cls(max_reconsume_times, levels, tuple(level_ms))

    def level_of_attempt(self, attempt: int) -> int:
        """The delay level after a failed attempt (1 is the first)."""
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
        known = " ".join(format_ms(ms) for ms in level_ms)
        raise from_code(
            "ARGUMENT_ILLEGAL", f"--retry-delays: {delay} is not a delay level of this store ({known})"
        )
    return list(level_ms).index(wanted) + 1
