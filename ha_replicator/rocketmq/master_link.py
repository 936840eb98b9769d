"""A RocketMQ slave's connection, seen from a LakeMQ master.

Owns what was sent to it and what it reported.

Invariants: as RocketMQ's master: a slave that reports 0 first gets the log from its newest file's beginning,
another from where it reports; a frame has at most `TRANSFER_BYTES`. A report confirms nothing.

Threads: as `ha_replicator.master.link`.
"""

from __future__ import annotations

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.master.catch_up import CatchUp
from ha_replicator.rocketmq.frames import TRANSFER_BYTES, ReportReader, WireError, header
from ha_replicator.rocketmq.raw_log import RawLog
from ha_replicator.throughput import Throughput


class RocketMQMasterLink:
    """A RocketMQ slave, as far as its connection tells; the methods are those of `MasterLink`.

    Args:
        log: The master's.
        now: Seconds, never going back.
        limits: The bounds.
        catch_up: Says when a slave that is far behind gets its next bytes.
    """

    counts = False
    broker_id: int | None = None

    def __init__(self, log: RawLog, *, now: float, limits: LinkLimits, catch_up: CatchUp) -> None:
        self._log = log
        self._catch_up = catch_up
        self._pump_at: float | None = None  # held bytes may go then
        self._limits = limits
        self._reports = ReportReader()
        self._epoch = log.role()[1]
        self._opened_at = self._heard_at = self._said_at = now
        self.superseded = self.bootstraps = False
        self.following = False
        self.sent = 0
        self.acked = 0
        self.acked_at = now
        self.throughput = Throughput()

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes reports; answers nothing by itself.

        Raises:
            LinkClosed: A report goes back, beyond what was sent, or is none.
        """
        try:
            for offset in self._reports.feed(data):
                self._report(offset)
                self._heard_at = self.acked_at = now
                self.throughput.note(offset, now)
        except WireError as error:
            raise LinkClosed("FRAME_ILLEGAL", str(error)) from error
        return []

    def _report(self, offset: int) -> None:
        first, _, flushed, _ = self._log.marks()
        if self.following:
            if not self.acked <= offset <= self.sent:
                raise LinkClosed("OFFSET_ILLEGAL", f"it reports {offset}, it was sent up to {self.sent}")
        elif offset == 0:
            self.sent = flushed - flushed % self._log.file_size()
        elif first <= offset <= flushed:
            self.sent = offset
        else:
            raise LinkClosed("OFFSET_ILLEGAL", f"it asks for {offset}, the log holds [{first}, {flushed})")
        self.following = True
        self.acked = offset

    def pump(self, now: float) -> list[bytes]:
        """Returns what is to be sent next.

        Raises:
            LinkClosed: The slave is silent, or this broker is the master of that epoch no more.
        """
        self.check(now)
        if not self.following:
            return []
        if self._log.role() != ("master", self._epoch):
            raise LinkClosed("NOT_MASTER", f"this broker is not the master of epoch {self._epoch} any more")
        pieces: list[bytes] = []
        end = self._log.marks()[2]
        held = not self._catch_up.look(self.sent, end, now)
        self._pump_at = self._catch_up.ready_at() if held else None
        if self.sent < end and not held and self.sent - self.acked < self._limits.window_bytes:
            body = self._log.read_raw(self.sent, TRANSFER_BYTES)
            pieces = [header(self.sent, len(body)), body]
            self._catch_up.took(len(body), self.sent, end, now)
            self.sent += len(body)
        elif now - self._said_at >= self._limits.heartbeat_s:
            pieces = [header(self.sent, 0)]
        if pieces:
            self._said_at = now
        return pieces

    def check(self, now: float) -> None:
        """Ends the connection of a slave that is silent.

        Raises:
            LinkClosed: It is.
        """
        silent = self._limits.housekeeping_s if self.following else self._limits.handshake_s
        if now - self._heard_at >= silent:
            raise LinkClosed("TIMEOUT", f"the slave said nothing for {silent:g} s")

    def is_due(self, now: float) -> bool:
        """Whether :meth:`pump` may have something to do: it is asked."""
        return True

    def next_deadline(self) -> float:
        """When :meth:`pump` must be called at the latest."""
        if not self.following:
            return self._opened_at + self._limits.handshake_s
        deadline = min(self._heard_at + self._limits.housekeeping_s, self._said_at + self._limits.heartbeat_s)
        return deadline if self._pump_at is None else min(deadline, self._pump_at)

    def lag(self) -> int:
        """Bytes of the log that the slave did not report yet."""
        return self._log.marks()[2] - self.acked
