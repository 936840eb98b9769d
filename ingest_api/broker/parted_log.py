"""Whether a slave's log is known not to be that of its master.

Owns why nobody is to read it in its master's place.

Invariants: a log that a master refused, or that has nothing of the epoch its broker heard of, is not its
master's until it follows one; the latter is known after a restart, and without a master, too.

Threads: the event loop.
"""

from __future__ import annotations

from ha_replicator.transport.follower import Follower
from store_native import ReplicatedLog


class PartedLog:
    """What is known of a slave's log.

    Args:
        log: The log.

    Attributes:
        reason: Why it is not its master's, in words; None: as far as is known it is.
    """

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self._followed_epoch = 0
        self.reason: str | None = None

    def look(self, *, is_slave: bool, follower: Follower | None) -> bool:
        """Looks again, as the role or the connection to the master changed; says whether it is another."""
        before = self.reason
        self.reason = self._found(follower) if is_slave else None
        return self.reason != before

    def _found(self, follower: Follower | None) -> str | None:
        link = None if follower is None else follower.link
        if link is not None and link.following:
            self._followed_epoch = link.epoch
            return None
        if follower is not None and follower.refusal is not None:
            return f"its log parted from its master's: {follower.refusal}"
        seen, epochs = self._log.role()[1], self._log.epochs()
        held = epochs[-1][0] if epochs else seen
        # One that follows a new master has nothing of its epoch for a moment, or while it is far behind.
        if held < seen and self._followed_epoch < seen:
            return f"its log parted from its master's: it is of epoch {held}, and has nothing of epoch {seen}"
        return None
