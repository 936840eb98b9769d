"""The connection to the master, seen from the slave: a state machine without sockets and clocks.

Owns how far the log follows the master.

Invariants: nothing is cut or appended before the master has proved who it is, none of an epoch that is over,
and nothing but the next range; the log is cut only where it parts from the master's, and never before the
bytes in front of that place were compared.

Threads: one, the driver's (transport/) or the simulation's. Ranges are appended from it; a cut, which copies
what it takes away, is left to the driver.
"""

from __future__ import annotations

from ha_replicator.identity import LinkClosed
from ha_replicator.link_opening import LinkOpening
from ha_replicator.log import ReplicatedLog
from ha_replicator.slave.handshake import SlaveHandshake, refused
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Welcome
from store_native.errors import LakeMQError


class SlaveLink(SlaveHandshake):
    """A master that is followed; arguments and attributes as for :class:`SlaveHandshake`.

    When :attr:`cut_at` is set after :meth:`receive`, the driver cuts the log there and calls :meth:`cut`.

    Attributes:
        master_end: The master's log goes so far at least; None until it said so.
    """

    def __init__(self, opening: LinkOpening, log: ReplicatedLog) -> None:
        super().__init__(opening, log)
        self._log = log
        self._newest_epoch = 0
        self.master_end: int | None = None

    def cut(self, now: float) -> list[bytes]:
        """The log was cut at :attr:`cut_at`; returns what is to be sent."""
        assert self.cut_at is not None
        self.cut_at = None
        self._newest_epoch = self._log.epochs()[-1][0]
        self.following = True
        self._go_on(self._follow, FrameKind.DATA, FrameKind.HEARTBEAT)
        return self.report(now) + self.receive(b"", now)

    def _held(self) -> tuple[int, int]:
        _, appended, flushed, _ = self._log.marks()
        return (flushed if self._reports_flushed else appended), self._newest_epoch

    def _welcome(self, welcome: Welcome) -> None:
        seen = self._log.role()[1]
        if seen > self.epoch:
            raise refused("EPOCH_OVER", f"epoch {self.epoch} is over: this slave heard of {seen}", epoch=seen)
        first, _, flushed, _ = self._log.marks()
        if not welcome.log_digest_from <= welcome.common <= flushed or welcome.log_digest_from < first:
            raise refused("OFFSET_ILLEGAL", f"this log holds [{first}, {flushed}), not {welcome.common}")
        if self._log.digest(welcome.log_digest_from, welcome.common) != welcome.log_digest:
            raise refused(
                "LOG_DIVERGED", f"the logs differ before {welcome.common}: one is of another broker"
            )
        self._log.become_slave(self.epoch)
        self.cut_at = welcome.common

    def _follow(self, frame: Frame) -> list[bytes]:
        self._check_speaker(frame)
        try:
            if frame.kind is FrameKind.DATA:
                self._log.append(self.epoch, frame.offset, frame.epoch, frame.next_offset, frame.body)
                self._newest_epoch = max(self._newest_epoch, frame.epoch)
            elif frame.epoch > self._newest_epoch:
                self._log.begin_epoch(frame.epoch, frame.offset)
                self._newest_epoch = frame.epoch
        except LakeMQError as error:
            raise LinkClosed(error.code, error.detail) from error
        self.master_end = max(self.master_end or 0, frame.next_offset, frame.confirmed)
        self._log.replicated(frame.confirmed)
        return []
