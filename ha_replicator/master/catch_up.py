"""How fast a slave that is far behind gets the log: slowly enough that senders hardly notice.

Owns the rate of a master, which its far slaves share, when each of them may get its next bytes, and which
bytes nobody needs in memory after that.

Invariants: a slave near the log's end is not held back. All that are far behind get the rate together, and
each besides as much as the log grows by, so that it comes nearer whatever is sent. Where a synchronous master
has not enough slaves near its end, senders wait for those that are far: nobody is held back then.

Threads: the driver's.
"""

from __future__ import annotations

from typing import Protocol

from ha_replicator.master.replicas import Replicas

NEAR_BYTES = 4 << 20
"""A slave that was not sent more than this is far behind."""
PIECE_BYTES = 128 << 10
"""About so much goes to it at once: the event loop is held for a fraction of a millisecond."""
TAIL_BYTES = 256 << 20
"""What lies further behind the log's end leaves the system's memory once it was sent: it shall not take the
place of what is sent and read now."""
AHEAD_BYTES = 4 << 20
"""So much before a slave's place is fetched from the disk, so that no event loop waits for it."""
AT_ONCE_BYTES = 2 << 20
"""So much is fetched, or let go of, at a time."""


class LogMemory(Protocol):
    """What of the log lies in the system's memory; neither method waits."""

    def fetch(self, begin: int, end: int) -> None:
        """Brings [begin, end) into memory."""

    def let_go(self, begin: int, end: int) -> None:
        """Nobody reads [begin, end) soon again."""


class CatchUpRate:
    """What the far slaves of a master get.

    Args:
        bytes_per_s: Together, besides what the log grows by.
        replicas: The slaves that follow.
        near_bytes: A slave that was not sent more than this is far behind.
    """

    def __init__(self, bytes_per_s: float, replicas: Replicas, *, near_bytes: int = NEAR_BYTES) -> None:
        self._bytes_per_s = bytes_per_s
        self._replicas = replicas
        self.near_bytes = near_bytes

    def share(self, end: int) -> float | None:
        """Returns the bytes per second of each far slave; None: as fast as it goes. ``end`` is the log's."""
        links = self._replicas.links
        far = sum(end - link.sent > self.near_bytes for link in links)
        near = sum(end - link.sent <= self.near_bytes and not link.bootstraps for link in links)
        return None if near < self._replicas.needed else self._bytes_per_s / max(far, 1)


class CatchUp:
    """When one slave may get its next bytes.

    Args:
        rate: Of its master.
        memory: Is told which part of the log it gets soon, and which it has got.
    """

    def __init__(self, rate: CatchUpRate, memory: LogMemory) -> None:
        self._rate = rate
        self._memory = memory
        self._end = 0
        self._grown = 0
        self._ready_at = float("-inf")
        self._kept_from: int | None = None
        self._fetched_to = 0

    def look(self, sent: int, end: int, now: float) -> bool:
        """Whether it may get something now, having been sent the log up to ``sent`` of ``end``."""
        if not self.is_far(sent, end):
            self._grown, self._end = 0, end
            return True
        self._grown = min(self._grown + end - self._end, self._rate.near_bytes) if self._end else 0
        self._end = end
        ready = now >= self._ready_at or self._grown >= PIECE_BYTES
        return ready or self._rate.share(end) is None

    def is_far(self, sent: int, end: int) -> bool:
        """Whether it is far behind."""
        return end - sent > self._rate.near_bytes

    def took(self, size: int, sent: int, end: int, now: float) -> None:
        """It got so many bytes, which were behind ``sent``."""
        self._pass(sent, end)
        share = self._rate.share(end)
        if share is None or not self.is_far(sent, end):
            self._ready_at = now
            return
        if now >= self._ready_at:
            self._ready_at = now + size / share
        else:
            self._grown -= size

    def ready_at(self) -> float:
        """When it may get the next bytes, where it is held back."""
        return self._ready_at

    def _pass(self, sent: int, end: int) -> None:
        if self._kept_from is None or end - sent <= TAIL_BYTES:
            self._kept_from = sent
        if sent - self._kept_from >= AT_ONCE_BYTES:
            self._memory.let_go(self._kept_from, sent)
            self._kept_from = sent
        ahead = min(sent + AHEAD_BYTES, end)
        if self.is_far(sent, end) and ahead - self._fetched_to >= AT_ONCE_BYTES:
            self._memory.fetch(max(self._fetched_to, sent), ahead)
            self._fetched_to = ahead
