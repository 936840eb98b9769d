"""What a master says to a slave that has no store, or far to go, over a log in memory.

Contract: without a store it gets the state and then the log from its first byte; while it is far behind it
waits for its turn and still hears that the master lives.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ha_replicator.link_limits import LinkLimits
from ha_replicator.master.catch_up import PIECE_BYTES, CatchUp, CatchUpRate
from ha_replicator.master.replicas import Replicas
from ha_replicator.wire.credentials import Credentials
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Refusal, Welcome
from tests.support.linked_brokers import SECRET, NotedMemory
from tests.support.slave_of_a_link import EPOCH, TEN, LogWithSnapshot, Slave, log_of, refused, report


def snapshot_of(log: LogWithSnapshot, snapshot: bytes, **other: Any) -> tuple[Slave, Welcome]:
    """A slave without a store that was promised a snapshot, and the promise."""
    log.first, log.snapshot = 10, snapshot
    slave = Slave(log, **other)
    slave.hello()
    return slave, slave.welcome(snapshot=True, epochs=[])


def test_slave_without_a_store_gets_the_state_and_then_the_log_from_its_first_byte() -> None:
    state = bytes(range(60))
    slave, welcome = snapshot_of(log_of(TEN, TEN, TEN), state)
    assert welcome == Welcome(
        digest=Credentials(SECRET).prove("master", slave.said),
        common=10,
        log_digest_from=10,
        log_digest=0,
        epochs=[(EPOCH, 0)],
        snapshot_offset=30,
        snapshot_bytes=60,
        snapshot_digest=hashlib.sha256(state).hexdigest(),
    )
    link = slave.link
    link.receive(report(10), 0.0)
    assert link.bootstraps
    assert not link.counts, "it is no replica, whatever it reports"
    sent = []
    for _ in range(3):
        assert link.is_due(1.0)
        sent.append(slave.pump(1.0))
    assert sent == [
        Frame(FrameKind.SNAPSHOT, at, speaker_epoch=EPOCH, body=state[at : at + 25]) for at in (0, 25, 50)
    ]
    assert slave.pump(1.0) == Frame(FrameKind.DATA, 10, 30, EPOCH, EPOCH, 0, TEN * 2)


def test_log_that_begins_at_0_tells_the_state_itself() -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    welcome = slave.welcome(snapshot=True, epochs=[])
    assert (welcome.common, welcome.log_digest_from, welcome.log_digest) == (0, 0, 0)
    assert (welcome.epochs, welcome.snapshot_offset) == ([], 0)
    assert (welcome.snapshot_bytes, welcome.snapshot_digest) == (0, "")
    assert slave.link.bootstraps


def test_slave_hears_why_there_is_no_snapshot() -> None:
    log = log_of(TEN, TEN)
    log.broken = True
    _, heard = refused(lambda: snapshot_of(log, b""), "SYSTEM_BUSY")
    assert heard == Refusal("SYSTEM_BUSY", "no room for it", EPOCH)


@pytest.mark.parametrize("size", [60, 61])
def test_snapshot_larger_than_a_slave_takes_is_not_begun(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ha_replicator.master.link.MAX_SNAPSHOT_BYTES", 60)
    if size == 60:
        assert snapshot_of(log_of(TEN, TEN), b"x" * size)[1].snapshot_bytes == 60
    else:
        _, heard = refused(lambda: snapshot_of(log_of(TEN, TEN), b"x" * size), "SYSTEM_BUSY")
        assert heard == Refusal("SYSTEM_BUSY", "the snapshot has 61 bytes", EPOCH)


def held_back(log: LogWithSnapshot, near_bytes: int, bytes_per_s: float = 10.0) -> CatchUp:
    """What gives a far slave a few bytes a second."""
    rate = CatchUpRate(bytes_per_s, Replicas(log, needed=0), near_bytes=near_bytes)
    return CatchUp(rate, NotedMemory())


def test_far_slave_waits_for_its_time_and_still_hears_heartbeats() -> None:
    log = log_of(*[TEN] * 10)
    slave = Slave(log, catch_up=held_back(log, 30, bytes_per_s=2.0))
    link = slave.follow()
    assert slave.pump() == Frame(FrameKind.DATA, 0, 20, EPOCH, EPOCH, 0, TEN * 2)
    assert link.is_due(0.0), "a slave that is far is looked at whenever the log moves"
    assert link.pump(0.0) == []
    assert link.next_deadline() == 5.0, "the heartbeat comes before the bytes"
    log.replicated(10)
    assert link.pump(0.1) == [], "nor is it told what is confirmed by itself"
    assert slave.pump(5.0) == Frame(FrameKind.HEARTBEAT, 20, 20, 0, EPOCH, 10)
    assert link.next_deadline() == 10.0
    assert slave.pump(10.0).offset == 20


def test_deadline_of_a_slave_that_is_held_back_is_when_its_next_bytes_may_go() -> None:
    log = log_of(*[TEN] * 10)
    slave = Slave(log, catch_up=held_back(log, 30))
    link = slave.follow()
    slave.pump()
    assert link.pump(0.0) == []
    assert link.next_deadline() == 2.0
    assert slave.pump(2.0).offset == 20
    assert link.next_deadline() == 7.0, "until it is asked again"


def test_far_slave_gets_small_pieces_of_log_and_snapshot() -> None:
    line = b"x" * 49_999 + b"\n"
    log = log_of(*[line] * 20)
    state = b"s" * 300_000
    wide = LinkLimits()
    slave, _ = snapshot_of(log, state, catch_up=held_back(log, 100, 1e9), limits=wide)
    slave.link.receive(report(10), 0.0)
    assert len(slave.pump(0.0).body) == PIECE_BYTES
    far = Slave(log_of(*[line] * 20), limits=wide, catch_up=held_back(log, 100, 1e9))
    far.follow()
    assert len(far.pump().body) == 2 * len(line)
    near = Slave(log_of(*[line] * 20), limits=wide)
    near.follow()
    assert len(near.pump().body) == 10 * len(line)


def test_snapshot_is_held_back_as_the_log_is() -> None:
    log = log_of(*[TEN] * 10)
    slave, _ = snapshot_of(log, bytes(60), catch_up=held_back(log, 30))
    slave.link.receive(report(10), 0.0)
    assert len(slave.pump().body) == 25
    assert slave.link.pump(2.4) == []
    assert slave.link.next_deadline() == 2.5
    assert slave.pump(2.5).offset == 25
