"""What a slave heard of its master: how far that one's log went, and when it was heard last.

Owns what a promotion is refused for, and what it says of what may be missing.

Invariants: what the master had is known up to a place only, that it said itself; what it took since is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from ha_replicator.living_master import LivingMaster
from store_native.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Promotion:
    """A slave is the master of a new epoch.

    Attributes:
        epoch: The new one.
        begins_at: Where its first byte lies: the end of the slave's log.
        master_end: The old master's log went so far at least; None: none was heard since the slave's start.
        silent_s: So long before the promotion it was heard last; None as well.
    """

    epoch: int
    begins_at: int
    master_end: int | None
    silent_s: float | None

    @property
    def lacks_bytes(self) -> int | None:
        """So much of the old master's log at least is not in the new one; None: nothing is known of it."""
        return None if self.master_end is None else max(0, self.master_end - self.begins_at)


class HeardMaster:
    """The master that a slave follows, or followed, as far as it was heard."""

    def __init__(self) -> None:
        self._end: int | None = None
        self._heard_at: float | None = None

    @property
    def end(self) -> int | None:
        """How far its log went at least, when it was heard last; None: it never was."""
        return self._end

    def note(self, end: int, now: float) -> None:
        """Takes how far the master's log goes at least, of what it said just now."""
        self._end, self._heard_at = end, now

    def refuse_loss(self, first: int, appended: int, seen_epoch: int, held_epoch: int) -> None:
        """Refuses the promotion of a slave that is known to lack something.

        Args:
            first: The first byte of the slave's log.
            appended: Its end.
            seen_epoch: The highest that the slave heard of.
            held_epoch: The newest that its log has.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        lacks = None
        if self._end is None:
            if appended == first:
                lacks = "this slave is empty and has not followed its master since it started"
            elif held_epoch < seen_epoch:
                # A master of before whose log could not be cut, say: it follows nobody.
                lacks = f"this slave's log is of epoch {held_epoch}, and has nothing of epoch {seen_epoch}"
        elif appended < self._end:
            lacks = f"this slave lacks {self._end - appended} bytes at least of what its master had"
        if lacks is not None:
            raise InvalidRequest(
                "ARGUMENT_ILLEGAL",
                f"{lacks}: what is missing would be lost; --force (?force=true) promotes it all the same",
            )

    @staticmethod
    def refuse_beside(living: LivingMaster, appended: int) -> None:
        """Refuses the promotion of a slave whose master answers: what that takes later would not count.

        Args:
            living: The master.
            appended: The end of the slave's log.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"its master {living.endpoint} answers and takes messages (epoch {living.epoch}, its log ends at "
            f"{living.end}, this one's at {appended}), which would be lost beside a second one: "
            "stop it first; --force (?force=true) promotes all the same",
        )

    def promotion(self, epoch: int, begins_at: int, now: float) -> Promotion:
        """Returns what is to be said of a promotion."""
        silent_s = None if self._heard_at is None else round(now - self._heard_at, 3)
        return Promotion(epoch, begins_at, self._end, silent_s)
