"""The connection of a slave that has no store yet: its master's state, and the log that it belongs to.

Owns what has arrived of the snapshot, and how far the log is.

Invariants: nothing is taken before the master has proved who it is; the snapshot counts when it is whole and
its digest right; what is reported never counts as a replica's.

Threads: one, the driver's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from ha_replicator.identity import LinkClosed
from ha_replicator.log import Epochs, ReplicatedLog
from ha_replicator.slave.link import SlaveLink
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Welcome, decode
from store_native.errors import LakeMQError


class StoreBeingMade(Protocol):
    """What a bootstrap writes to; the errors are those of ``store_native.Bootstrap``."""

    def append(self, offset: int, data: bytes, next_offset: int, /) -> None:
        """Appends bytes of the master's log."""

    def end(self) -> int:
        """The log's end."""


class NoStore:
    """The log of a slave that has none: empty, and of no epoch."""

    def marks(self) -> tuple[int, int, int, int]:
        """See :class:`ReplicatedLog`."""
        return 0, 0, 0, 0

    def role(self) -> tuple[str, int]:
        """See :class:`ReplicatedLog`."""
        return "slave", 0

    def epochs(self) -> list[tuple[int, int]]:
        """See :class:`ReplicatedLog`."""
        return []


class BootstrapLink(SlaveLink):
    """A master, to a slave that has no store; arguments as for :class:`SlaveLink`.

    Attributes:
        unneeded: The master's log tells everything itself: the slave follows as any other.
        complete: Log and snapshot are there.
        snapshot: What has arrived of it.
        epochs: The master's.
    """

    _wants_snapshot = True
    make_store: Callable[[int], StoreBeingMade]

    def begin_with(self, make_store: Callable[[int], StoreBeingMade]) -> list[bytes]:
        """Returns what is to be sent first.

        Args:
            make_store: Begins a store whose log begins at an offset.
        """
        self.make_store = make_store
        self.store: StoreBeingMade | None = None
        self.unneeded = self.complete = False
        self.snapshot = bytearray()
        self.epochs: Epochs = []
        self._expected: Welcome | None = None
        return self.begin()

    def report(self, now: float) -> list[bytes]:
        """Returns a report when the log has grown, or the last one is long ago; see :class:`SlaveLink`."""
        if not self.following or self.store is None:
            return super().report(now)
        if now - self._heard_at >= self._limits.housekeeping_s:
            raise LinkClosed("TIMEOUT", f"the master said nothing for {self._limits.housekeeping_s:g} s")
        held = self.store.end(), 0
        if held == self._reported and now - self._said_at < self._limits.heartbeat_s:
            return []
        self._reported, self._said_at = held, now
        return Frame(FrameKind.REPORT, held[0], held[0], 0, self.epoch, 0).pieces()

    def _welcome(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        welcome = decode(Welcome, frame)
        if not self._credentials.accepts("master", self._transcript, welcome.digest):
            raise LinkClosed("NO_PERMISSION", "the master does not know this cluster's secret")
        if not welcome.snapshot_bytes:
            self.unneeded = True
            raise LinkClosed("NO_SNAPSHOT", "the master's log begins at 0 and tells everything")
        self._expected, self.epochs = welcome, welcome.epochs
        self.store = self.make_store(welcome.common)
        self.following = True
        self._take = self._take_snapshot
        self._reader.allow(FrameKind.SNAPSHOT, FrameKind.REFUSAL)
        return []

    def _take_snapshot(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        welcome = self._expected
        assert welcome is not None
        if frame.offset != len(self.snapshot) or not frame.body:
            raise LinkClosed("OFFSET_ILLEGAL", f"a piece of the snapshot at {frame.offset}")
        self.snapshot += frame.body
        if len(self.snapshot) < welcome.snapshot_bytes:
            return []
        if hashlib.sha256(self.snapshot).hexdigest() != welcome.snapshot_digest:
            raise LinkClosed("DATA_CORRUPT", "the snapshot is not what its digest says")
        self._take = self._take_log
        self._reader.allow(FrameKind.DATA, FrameKind.HEARTBEAT, FrameKind.REFUSAL)
        return []

    def _take_log(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        if frame.speaker_epoch != self.epoch:
            raise LinkClosed(
                "EPOCH_OVER", f"the master of epoch {self.epoch} speaks for {frame.speaker_epoch}"
            )
        assert self.store is not None
        assert self._expected is not None
        if frame.kind is FrameKind.DATA and not self.complete:
            try:
                self.store.append(frame.offset, frame.body, frame.next_offset)
            except LakeMQError as error:
                if error.code == "DISK_FULL":
                    raise  # another connection would end the same
                raise LinkClosed(error.code, error.detail) from error
        self.complete = self.store.end() >= self._expected.snapshot_offset
        return []


def no_store() -> ReplicatedLog:
    """Returns the log that a bootstrap's link asks."""
    return NoStore()  # type: ignore[return-value]  # a bootstrap asks no more of it
