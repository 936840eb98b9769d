"""What all slaves of a master have together.

Owns which links count, how far the log is replicated, and whether a send can be at all.

Invariants: what is replicated never goes back; a link counts from its first report to its end. A slave that
is too far behind, or silent, is not in reach: a sender learns that at once instead of waiting for it.

Threads: the driver's.
"""

from __future__ import annotations

from ha_replicator.links import LinkToSlave
from ha_replicator.log import ReplicatedLog

MAX_FALL_BEHIND_BYTES = 256 << 20
"""RocketMQ's ``haSlaveFallbehindMax``."""


class Replicas:
    """The slaves that follow.

    Args:
        log: The master's log.
        needed: How many must have a message before it counts; 0 asks none (an asynchronous master).
        max_fall_behind_bytes: A slave further behind is not in reach.
        silence_s: Nor is one that reported nothing for so long.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        needed: int,
        max_fall_behind_bytes: int = MAX_FALL_BEHIND_BYTES,
        silence_s: float = 20.0,
    ) -> None:
        self._log = log
        self._max_fall_behind_bytes = max_fall_behind_bytes
        self._silence_s = silence_s
        self.needed = needed
        self.links: list[LinkToSlave] = []
        self.replicated = 0

    def joined(self, link: LinkToSlave) -> None:
        """Counts a link from now on; of two with one broker id the later counts."""
        known = link.broker_id
        for other in [other for other in self.links if known is not None and other.broker_id == known]:
            other.superseded = True
            self.links.remove(other)
        self.links.append(link)
        self.reported()

    def left(self, link: LinkToSlave) -> None:
        """Counts a link no more."""
        if link in self.links:
            self.links.remove(link)

    def reported(self) -> None:
        """Moves the confirmed mark as far as enough slaves have the log."""
        if not self.needed or len(self.links) < self.needed:
            return
        held = sorted((link.acked if link.counts else 0 for link in self.links), reverse=True)[
            self.needed - 1
        ]
        if held > self.replicated:
            self.replicated = held
            self._log.replicated(held)

    def in_reach(self, now: float) -> bool:
        """Says whether enough slaves can have a message soon."""
        return sum(self._is_near(link, now) for link in self.links) >= self.needed

    def to_read_from(self, now: float) -> int | None:
        """Returns the lowest id of the slaves that have all but the newest of the log; None without one."""
        near = (link.broker_id for link in self.links if link.following and self._is_near(link, now))
        return min((broker_id for broker_id in near if broker_id is not None), default=None)

    def _is_near(self, link: LinkToSlave, now: float) -> bool:
        return (
            not link.bootstraps
            and link.lag() <= self._max_fall_behind_bytes
            and now - link.acked_at < self._silence_s
        )
