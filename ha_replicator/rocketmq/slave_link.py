"""The connection to a RocketMQ master, seen from a LakeMQ slave.

Owns the bytes that have arrived and make no whole record yet.

Invariants: only whole records are appended, each checked by the store, at the offset they have on the master;
a frame that is not the next one ends the connection. What a RocketMQ master sends counts at once: it has no
word for what is confirmed.

Threads: as `ha_replicator.slave.link`.
"""

from __future__ import annotations

import struct

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.rocketmq.frames import BodyReader, WireError, report
from ha_replicator.rocketmq.raw_log import RawLog
from store_native.errors import LakeMQError

_RECORD = struct.Struct(">ii")
_END_MARKER = -875_286_124
_MARKER_BYTES = 8


class RocketMQSlaveLink:
    """A RocketMQ master, as far as its connection tells; the methods are those of `SlaveLink`.

    Args:
        log: The slave's.
        now: Seconds, never going back.
        limits: The bounds.
    """

    cut_at: int | None = None

    def __init__(self, log: RawLog, *, now: float, limits: LinkLimits) -> None:
        self._log = log
        self._limits = limits
        self._bodies = BodyReader()
        self._heard_at = self._said_at = now
        self._begun = log.marks()[1]
        self._arrived = self._begun
        self._rest = bytearray()
        self._reported = -1
        self.epoch = log.role()[1]
        self.following = False
        self.master_end: int | None = None

    def begin(self) -> list[bytes]:
        """Returns the first report."""
        self._log.become_slave(self.epoch)
        self._reported = self._begun
        return [report(self._begun)]

    def cut(self, now: float) -> list[bytes]:
        """RocketMQ's protocol cuts nothing."""
        raise AssertionError("nothing is to be cut")

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent.

        Raises:
            LinkClosed: It is not the next of the log.
        """
        try:
            for offset, body in self._bodies.feed(data):
                self._heard_at = now
                self.following = True
                self.master_end = max(self.master_end or 0, offset + len(body))
                if body:
                    self._take(offset, body)
        except WireError as error:
            raise LinkClosed("FRAME_ILLEGAL", str(error)) from error
        except LakeMQError as error:
            raise LinkClosed(error.code, error.detail) from error
        return self.report(now)

    def _take(self, offset: int, body: bytes) -> None:
        if offset != self._arrived:
            hint = "; begin with a copy of the master's store" if self._arrived == 0 else ""
            raise LinkClosed("OFFSET_ILLEGAL", f"the master sends {offset}, not {self._arrived}{hint}")
        self._rest += body
        self._arrived += len(body)
        at = self._log.marks()[1]
        data, next_offset = self._whole(at)
        if next_offset > at:
            self._log.append(self.epoch, at, self.epoch, next_offset, bytes(data))
            self._log.replicated(self._log.marks()[1])
            del self._rest[: next_offset - at]

    def _whole(self, at: int) -> tuple[bytes, int]:
        """Whole records of one file at the beginning of what is not appended, and where the log goes on."""
        rest, size = self._rest, self._log.file_size()
        file_end = at - at % size + size
        end = 0
        while len(rest) - end >= _RECORD.size:
            length, magic = _RECORD.unpack_from(rest, end)
            if magic == _END_MARKER:
                if at + len(rest) < file_end:
                    break
                return bytes(rest[: end + _MARKER_BYTES]), file_end
            if length <= 0 or at + end + length > file_end:
                raise LinkClosed("DATA_CORRUPT", f"a record of {length} bytes at {at + end}")
            if len(rest) - end < length:
                break
            end += length
        return bytes(rest[:end]), at + end

    def report(self, now: float) -> list[bytes]:
        """Returns a report when what is held has grown, or the last one is long ago.

        Raises:
            LinkClosed: The master is silent.
        """
        if now - self._heard_at >= self._limits.housekeeping_s:
            raise LinkClosed("TIMEOUT", f"the master said nothing for {self._limits.housekeeping_s:g} s")
        held = self._log.marks()[2]
        if held == self._reported and now - self._said_at < self._limits.heartbeat_s:
            return []
        self._reported, self._said_at = held, now
        return [report(held)]

    def is_due(self) -> bool:
        """Whether :meth:`report` may have something to say: it is asked."""
        return True

    def next_deadline(self) -> float:
        """When :meth:`report` must be called at the latest."""
        return min(self._heard_at + self._limits.housekeeping_s, self._said_at + self._limits.heartbeat_s)
