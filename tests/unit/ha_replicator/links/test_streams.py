"""Whatever becomes of the bytes between master and slave, the slave's log is a prefix of its master's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.wire.frames import HEADER_BYTES, Frame, FrameKind
from store_native import ReplicatedLog, Store
from tests.support.examples import examples
from tests.support.linked_brokers import LIMITS, SOON_MS, Pair, master_link, open_store, slave_link

BODIES = [b"one", b"two " * 20, b"three"]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with ExitStack() as on_exit:
        found = open_store(tmp_path / "a", asks_replicas=True), open_store(tmp_path / "b", "slave")
        for store in found:
            on_exit.callback(store.close)
        end = 0
        for body in BODIES:
            end = found[0].append_message("t", body).end_offset
        assert found[0].wait_flushed(end, SOON_MS)
        yield found


def connected(stores: tuple[Store, Store]) -> Pair:
    """Returns a pair whose handshake is over; the master has said nothing of the log yet."""
    assert stores[1].wait_flushed(stores[1].watermarks()[0], SOON_MS)
    master, slave = (store.replicated_log() for store in stores)
    link = master_link(master)
    pair = Pair(link, slave_link(slave), slave, Replicas(master, needed=1))
    while not pair.slave.following:
        pair.to_slave += b"".join(link.receive(bytes(pair.to_master), 0.0))
        pair.to_master.clear()
        pair.to_master += b"".join(pair.slave.receive(bytes(pair.to_slave), 0.0))
        pair.to_slave.clear()
        if pair.slave.cut_at is not None:
            slave.truncate_to(pair.slave.cut_at)
            pair.to_master += b"".join(pair.slave.cut(0.0))
    link.receive(bytes(pair.to_master), 0.0)
    assert link.following
    pair.to_master.clear()
    return pair


def frames_of(log: ReplicatedLog, epoch: int = 1) -> list[bytes]:
    """The log, each request in a frame of its own."""
    found: list[bytes] = []
    at = 0
    while True:
        _, next_offset, data = log.read(at, 1)
        if not data:
            return found
        frame = Frame(FrameKind.DATA, at, next_offset, 1, epoch, 0, data)
        found.append(b"".join(frame.pieces()))
        at = next_offset


def log_of(store: Store) -> bytes:
    return b"".join(path.read_bytes() for path in (Path(store.path) / "commitlog").glob("0*"))


def ends_of(log: ReplicatedLog) -> list[int]:
    ends, at = [0], 0
    while (next_offset := log.read(at, 1)[1]) > at:
        ends.append(next_offset)
        at = next_offset
    return ends


def is_prefix(stores: tuple[Store, Store]) -> bool:
    """The slave's log ends with a request, and is its master's up to there."""
    end = stores[1].watermarks()[0]
    whole = end in ends_of(stores[0].replicated_log())
    slaves = log_of(stores[1])
    return whole and slaves[:end] == log_of(stores[0])[:end] and not slaves[end:].strip(b"\0")


def test_slave_has_whole_requests_wherever_the_stream_is_cut(stores: tuple[Store, Store]) -> None:
    stream = b"".join(frames_of(stores[0].replicated_log()))
    lengths = [len(frame) for frame in frames_of(stores[0].replicated_log())]
    ends = ends_of(stores[0].replicated_log())
    for cut in range(1, len(stream), len(stream) // examples(len(stream))):
        pair = connected(stores)
        arrived = sum(cut >= sum(lengths[: at + 1]) for at in range(len(lengths)))
        before = stores[1].watermarks()[0]
        skip = sum(lengths[: ends.index(before)])
        pair.slave.receive(stream[skip:cut] if cut > skip else b"", 0.0)
        assert stores[1].watermarks()[0] == max(before, ends[arrived])
        assert is_prefix(stores)


def test_slave_takes_frames_that_arrive_byte_by_byte(stores: tuple[Store, Store]) -> None:
    stream = b"".join(frames_of(stores[0].replicated_log()))
    pair = connected(stores)
    looks_every = len(stream) // examples(len(stream))
    for at in range(len(stream)):
        pair.slave.receive(stream[at : at + 1], at / 100)
        assert at % looks_every or is_prefix(stores)
    assert stores[1].watermarks()[0] == stores[0].watermarks()[0]


def test_master_that_says_a_byte_a_second_is_gone_after_20_and_leaves_nothing(
    stores: tuple[Store, Store],
) -> None:
    stream = b"".join(frames_of(stores[0].replicated_log()))
    pair = connected(stores)
    for second in range(20):
        pair.slave.receive(stream[second : second + 1], float(second))
        assert pair.slave.next_deadline() <= 20.0
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        pair.slave.receive(stream[20:21], 20.0)
    assert stores[1].watermarks()[0] == 0


def test_frame_that_takes_longer_than_the_20_seconds_arrives_over_a_slow_link(
    stores: tuple[Store, Store],
) -> None:
    end = stores[0].append_message("t", b"x" * 700_000).end_offset
    assert stores[0].wait_flushed(end, SOON_MS)
    stream = b"".join(frames_of(stores[0].replicated_log()))
    pair = connected(stores)
    a_step = LIMITS.progress_bytes
    for step, at in enumerate(range(0, len(stream), a_step)):
        pair.slave.receive(stream[at : at + a_step], step * 19.0)
    assert stores[1].watermarks()[0] == end


def test_slave_that_dribbles_is_silent_whatever_comes_of_it(stores: tuple[Store, Store]) -> None:
    """Nothing that a slave says is long: bytes that make no frame are no sign of life."""
    pair = connected(stores)
    said = b"".join(Frame(FrameKind.REPORT, 0, 0, 1, 1).pieces())
    for second in range(20):
        pair.master.receive(said[second : second + 1], float(second))
        pair.master.pump(float(second))
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        pair.master.pump(20.0)


@pytest.mark.parametrize("side", ["master", "slave"])
def test_peer_that_dribbles_before_its_proof_is_closed_after_the_handshakes_time(
    stores: tuple[Store, Store], side: str
) -> None:
    master, slave = (store.replicated_log() for store in stores)
    link = master_link(master) if side == "master" else slave_link(slave)
    peer = {"master": FrameKind.HELLO, "slave": FrameKind.CHALLENGE}[side]
    nonsense = b"".join(Frame(peer, body=b"x" * (1 << 20)).pieces())
    says = link.pump if isinstance(link, MasterLink) else link.report
    for second in range(10):
        link.receive(nonsense[second << 16 : (second + 1) << 16], float(second))
        says(float(second))
    link.receive(nonsense[10 << 16 : 11 << 16], 9.9)
    with pytest.raises(LinkClosed, match="no handshake within 10 s"):
        says(10.0)


def changed(at: int, to: bytes) -> Callable[[bytes], bytes]:
    """Overwrites bytes of a header and makes its checksum fit."""

    def change(frame: bytes) -> bytes:
        import zlib

        whole = bytearray(frame)
        whole[at : at + len(to)] = to
        crc = zlib.crc32(whole[HEADER_BYTES:], zlib.crc32(whole[16:HEADER_BYTES], zlib.crc32(whole[:12])))
        whole[12:16] = crc.to_bytes(4, "big")
        return bytes(whole)

    return change


NUMBERS = {"offset": 16, "next offset": 24, "epoch of the range": 32, "epoch of the speaker": 40}


@pytest.mark.parametrize("value", [-1, 7, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("name", NUMBERS)
def test_frame_with_another_number_is_refused_and_leaves_nothing(
    stores: tuple[Store, Store], name: str, value: int
) -> None:
    frame = frames_of(stores[0].replicated_log())[0]
    pair = connected(stores)
    with pytest.raises(LinkClosed):
        pair.slave.receive(changed(NUMBERS[name], value.to_bytes(8, "big", signed=True))(frame), 0.0)
    assert stores[1].watermarks()[0] == 0
    assert stores[1].replicated_log().role() == ("slave", 1), "a master of epoch 1 still is one"


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_huge_or_negative_length_is_refused_by_its_header(stores: tuple[Store, Store], length: bytes) -> None:
    frame = frames_of(stores[0].replicated_log())[0]
    pair = connected(stores)
    with pytest.raises(LinkClosed, match="FRAME_ILLEGAL"):
        pair.slave.receive(changed(8, length)(frame[:HEADER_BYTES]), 0.0)


def test_any_flipped_bit_of_a_range_is_refused(stores: tuple[Store, Store]) -> None:
    frame = frames_of(stores[0].replicated_log())[0]
    for at in range(0, len(frame) * 8, 5):
        flipped = bytearray(frame)
        flipped[at // 8] ^= 1 << at % 8
        pair = connected(stores)
        try:
            pair.slave.receive(bytes(flipped), 0.0)
        except LinkClosed as closed:
            assert closed.code == "FRAME_ILLEGAL"  # noqa: PT017 - a length that grew waits for more
        assert stores[1].watermarks()[0] == 0


@pytest.mark.parametrize("order", [[0, 0], [1], [0, 2], [0, 1, 0], [2, 1, 0]])
def test_range_that_comes_twice_or_out_of_turn_ends_the_connection(
    stores: tuple[Store, Store], order: list[int]
) -> None:
    frames = frames_of(stores[0].replicated_log())
    pair = connected(stores)
    with pytest.raises(LinkClosed, match="OFFSET_ILLEGAL"):
        pair.slave.receive(b"".join(frames[at] for at in order), 0.0)
    assert is_prefix(stores)


def test_master_of_an_epoch_that_is_over_appends_nothing(stores: tuple[Store, Store]) -> None:
    pair = connected(stores)
    stores[1].replicated_log().become_slave(2)
    with pytest.raises(LinkClosed, match="SERVICE_NOT_AVAILABLE"):
        pair.slave.receive(frames_of(stores[0].replicated_log())[0], 0.0)
    assert stores[1].watermarks()[0] == 0


def test_recorded_connection_acknowledges_nothing_when_played_again(
    stores: tuple[Store, Store],
) -> None:
    """Its proof was for another random number."""
    master, slave = (store.replicated_log() for store in stores)
    recorded = bytearray()
    pair = Pair(master_link(master), slave_link(slave), slave, Replicas(master, needed=1))
    recorded += pair.to_master
    while True:
        before = bytes(pair.to_master)
        if not pair.carry():
            break
        recorded += b"" if bytes(pair.to_master) == before else bytes(pair.to_master)
    confirmed = stores[0].watermarks()[3]
    again = master_link(master, nonce="3" * 32)
    with pytest.raises(LinkClosed, match="NO_PERMISSION"):
        again.receive(bytes(recorded), 0.0)
    assert not again.following
    assert stores[0].watermarks()[3] == confirmed
