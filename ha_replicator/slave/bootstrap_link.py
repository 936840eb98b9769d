"""The connection of a slave that has no store yet: its master's state, and the log that it belongs to.

Owns what has arrived of the snapshot, and how far the log is.

Invariants: nothing is taken before the master has proved who it is; the snapshot counts when it is whole and
its digest right; what is reported never counts as a replica's.

Threads: one, the driver's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal, Protocol

from ha_replicator.identity import LinkClosed
from ha_replicator.link_opening import LinkOpening
from ha_replicator.log import Epochs
from ha_replicator.slave.handshake import SlaveHandshake
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Welcome
from store_native.errors import LakeMQError


class StoreBeingMade(Protocol):
    """What a bootstrap writes to; the errors are those of ``store_native.Bootstrap``."""

    def append(self, offset: int, data: bytes, next_offset: int, /) -> None:
        """Appends bytes of the master's log."""

    def end(self) -> int:
        """The log's end."""


class NoStore:
    """Where the log of a slave stands that has none: it is empty, and of no epoch."""

    def marks(self) -> tuple[int, int, int, int]:
        """See :class:`ha_replicator.log.LogPosition`."""
        return 0, 0, 0, 0

    def role(self) -> tuple[Literal["master", "slave"], int]:
        """See :class:`ha_replicator.log.LogPosition`."""
        return "slave", 0

    def epochs(self) -> list[tuple[int, int]]:
        """See :class:`ha_replicator.log.LogPosition`."""
        return []


class BootstrapLink(SlaveHandshake):
    """A master, to a slave that has no store.

    Args:
        opening: What this broker begins with.
        make_store: Begins a store whose log begins at an offset; called once the master has proved who it is.

    Attributes:
        unneeded: The master's log tells everything itself: the slave follows as any other.
        complete: Log and snapshot are there.
        snapshot: What has arrived of it.
        epochs: The master's.
    """

    _wants_snapshot = True

    def __init__(self, opening: LinkOpening, make_store: Callable[[int], StoreBeingMade]) -> None:
        super().__init__(opening, NoStore())
        self._make_store = make_store
        self._store: StoreBeingMade | None = None
        self._expected: Welcome | None = None
        self.unneeded = self.complete = False
        self.snapshot = bytearray()
        self.epochs: Epochs = []

    def _held(self) -> tuple[int, int]:
        assert self._store is not None
        return self._store.end(), 0

    def _welcome(self, welcome: Welcome) -> None:
        if not welcome.snapshot_bytes:
            self.unneeded = True
            raise LinkClosed("NO_SNAPSHOT", "the master's log begins at 0 and tells everything")
        self._expected, self.epochs = welcome, welcome.epochs
        self._store = self._make_store(welcome.common)
        self.following = True
        self._go_on(self._take_snapshot, FrameKind.SNAPSHOT)

    def _take_snapshot(self, frame: Frame) -> list[bytes]:
        welcome = self._expected
        assert welcome is not None
        if frame.offset != len(self.snapshot) or not frame.body:
            raise LinkClosed("OFFSET_ILLEGAL", f"a piece of the snapshot at {frame.offset}")
        self.snapshot += frame.body
        if len(self.snapshot) < welcome.snapshot_bytes:
            return []
        if hashlib.sha256(self.snapshot).hexdigest() != welcome.snapshot_digest:
            raise LinkClosed("DATA_CORRUPT", "the snapshot is not what its digest says")
        self._go_on(self._take_log, FrameKind.DATA, FrameKind.HEARTBEAT)
        return []

    def _take_log(self, frame: Frame) -> list[bytes]:
        self._check_speaker(frame)
        assert self._store is not None
        assert self._expected is not None
        if frame.kind is FrameKind.DATA and not self.complete:
            try:
                self._store.append(frame.offset, frame.body, frame.next_offset)
            except LakeMQError as error:
                if error.code == "DISK_FULL":
                    raise  # another connection would end the same
                raise LinkClosed(error.code, error.detail) from error
        self.complete = self._store.end() >= self._expected.snapshot_offset
        return []
