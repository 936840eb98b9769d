"""A slave that a test speaks for: the other end of a master's link, over a log in memory.

Owns the handshake it goes through, the log of a master of `EPOCH`, and how frames are read and written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.master.link import MasterLink
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameKind, FrameReader
from ha_replicator.wire.handshake import Challenge, Hello, Proof, Refusal, Welcome, decode, frame_of
from store_native.errors import Unavailable
from tests.support.linked_brokers import SECRET, opening, unhurried
from tests.support.model_log import ModelLog

EPOCH = 3
LIMITS = LinkLimits(range_bytes=25, window_bytes=40)
HELLO = Hello("c", "a", 1, 0, "alike", "7" * 32)
TEN = b"ten bytes\n"


class LogWithSnapshot(ModelLog):
    """A log in memory that begins behind 0, and tells its state."""

    first = 0
    snapshot = b""
    broken = False

    def marks(self) -> tuple[int, int, int, int]:
        return self.first, *super().marks()[1:]

    def bootstrap_snapshot(self) -> tuple[int, bytes]:
        if self.broken:
            raise Unavailable("SYSTEM_BUSY", "no room for it")
        return self.end, self.snapshot


def log_of(*requests: bytes) -> LogWithSnapshot:
    """The log of a synchronous master of EPOCH, flushed."""
    log = LogWithSnapshot(is_master=True, asks=True, seen=EPOCH, starts=[(EPOCH, 0)])
    for data in requests:
        log.send(data)
    log.flush()
    return log


def frames(pieces: list[bytes]) -> list[Frame]:
    """What was said."""
    reader = FrameReader(1 << 20)
    reader.feed(b"".join(pieces))
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


def wire(frame: Frame) -> bytes:
    return b"".join(frame.pieces())


def report(offset: int, epoch: int = EPOCH, speaker: int = EPOCH) -> bytes:
    return Frame(FrameKind.REPORT, offset, offset, epoch, speaker).header()


class Slave:
    """The other end, which says what a test has it say."""

    def __init__(self, log: LogWithSnapshot, now: float = 0.0, **other: Any) -> None:
        self.log = log
        catch_up = other.pop("catch_up", None) or unhurried(log)
        flush = other.pop("flush", "sync")
        begin = opening(0, now, **{"limits": LIMITS, **other})
        self.link = MasterLink(begin, log, flush=flush, catch_up=catch_up)
        self.said = Transcript()

    def hello(self, hello: Hello = HELLO, now: float = 0.0) -> Challenge:
        frame = frame_of(hello)
        (answer,) = frames(self.link.receive(wire(frame), now))
        self.said.add(frame.body)
        self.said.add(answer.body)
        return decode(Challenge, answer)

    def proof(
        self,
        *,
        epochs: list[tuple[int, int]] | None = None,
        first: int = 0,
        end: int = 0,
        snapshot: bool = False,
        secret: bytes | None = SECRET,
    ) -> Frame:
        known = [(EPOCH, 0)] if epochs is None else epochs
        digest = Credentials(secret).prove("slave", self.said)
        return frame_of(Proof(digest, known, first, end, snapshot))

    def welcome(self, now: float = 0.0, **proof: Any) -> Welcome:
        (answer,) = frames(self.link.receive(wire(self.proof(**proof)), now))
        return decode(Welcome, answer)

    def follow(self, at: int = 0, epoch: int = EPOCH, now: float = 0.0) -> MasterLink:
        """Goes through the whole handshake, with a log that is the master's up to ``at``."""
        self.hello(now=now)
        assert self.welcome(now, end=at).common == at
        assert self.link.receive(report(at, epoch), now) == []
        assert self.link.following
        return self.link

    def pump(self, now: float = 0.0) -> Frame:
        (frame,) = frames(self.link.pump(now))
        return frame


def refused(
    act: Callable[[], object], code: str, match: str | None = None
) -> tuple[LinkClosed, Refusal | None]:
    """The end of a connection, and what the other side hears of it."""
    with pytest.raises(LinkClosed, match=match) as closed:
        act()
    assert closed.value.code == code
    heard = frames(list(closed.value.farewell))
    return closed.value, decode(Refusal, heard[0]) if heard else None
