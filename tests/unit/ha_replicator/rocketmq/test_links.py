"""RocketMQ's replication protocol, both sides of it ours: the same bytes, wherever they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.rocketmq.frames import MAX_BODY_BYTES, TRANSFER_BYTES, header, report
from ha_replicator.rocketmq.master_link import RocketMQMasterLink
from ha_replicator.rocketmq.slave_link import RocketMQSlaveLink
from store_native import Store
from tests.support.linked_brokers import SOON_MS, open_store, unhurried

LIMITS = LinkLimits()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with ExitStack() as on_exit:
        found = open_store(tmp_path / "a"), open_store(tmp_path / "b", "slave")
        for store in found:
            on_exit.callback(store.close)
        yield found


def send(store: Store, count: int, size: int = 100) -> int:
    end = 0
    for number in range(count):
        end = store.append_message("t", b"%d %s" % (number, b"x" * size)).end_offset
    assert store.wait_flushed(end, SOON_MS)
    return end


def files(store: Store, end: int) -> dict[str, bytes]:
    size = store.replicated_log().file_size()
    paths = sorted((Path(store.path) / "commitlog").glob("0*"))
    return {path.name: path.read_bytes()[: max(end - int(path.name), 0)][:size] for path in paths[:-1]}


def links(stores: tuple[Store, Store]) -> tuple[RocketMQMasterLink, RocketMQSlaveLink]:
    master, slave = (store.replicated_log() for store in stores)
    return (
        RocketMQMasterLink(master, now=0.0, limits=LIMITS, catch_up=unhurried(master)),
        RocketMQSlaveLink(slave, now=0.0, limits=LIMITS),
    )


@pytest.mark.parametrize("seed", range(4))
def test_slave_has_the_log_and_its_rolls_however_the_stream_is_cut(
    stores: tuple[Store, Store], seed: int
) -> None:
    chance = Random(seed)
    end = send(stores[0], 400, 9_000 + seed)
    assert end > 3 << 20, "the log rolls"
    master, slave = links(stores)
    # The newest file is where a slave that has nothing begins with RocketMQ; ours asks for what it needs.
    to_master, to_slave = bytearray(report(0)), bytearray()
    master.receive(bytes(to_master), 0.0)
    assert master.sent == end - end % (1 << 20)
    master.sent = 0  # as if the log had one file, of which the slave misses all
    to_master.clear()
    slave.begin()
    while stores[1].watermarks()[0] < end:
        to_slave += b"".join(master.pump(0.0))
        length = chance.choice([1, 11, 12, 13, 5_000, 100_000])
        to_master += b"".join(slave.receive(bytes(to_slave[:length]), 0.0))
        del to_slave[:length]
        master.receive(bytes(to_master), 0.0)
        to_master.clear()
    assert all(store.wait_dispatched(end, SOON_MS) for store in stores)
    assert files(stores[1], end) == files(stores[0], end)
    assert len(files(stores[0], end)) == 3
    assert stores[1].queues("t") == stores[0].queues("t")


def test_slave_that_comes_back_goes_on_where_it_was(stores: tuple[Store, Store]) -> None:
    first = send(stores[0], 10)
    for expected in (first, send(stores[0], 10)):
        master, slave = links(stores)
        master.receive(b"".join(slave.begin()), 0.0)
        while pieces := master.pump(0.0):
            slave.receive(b"".join(pieces), 0.0)
        at = stores[1].watermarks()[0]
        assert at >= expected
        assert stores[1].wait_flushed(at, SOON_MS)
        assert slave.report(5.0) == [report(at)]


def test_report_confirms_nothing_and_one_beyond_what_was_sent_ends_it(stores: tuple[Store, Store]) -> None:
    end = send(stores[0], 3)
    master, _ = links(stores)
    master.receive(report(0), 0.0)
    assert not master.counts
    with pytest.raises(LinkClosed, match="OFFSET_ILLEGAL"):
        master.receive(report(end + 1), 0.0)
    master, _ = links(stores)
    with pytest.raises(LinkClosed, match="OFFSET_ILLEGAL"):
        master.receive(report(end + 1), 0.0)
    with pytest.raises(LinkClosed, match="FRAME_ILLEGAL"):
        links(stores)[0].receive(b"\xff" * 8, 0.0)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (header(7, 4) + b"xxxx", "OFFSET_ILLEGAL"),
        (header(-1, 0), "FRAME_ILLEGAL"),
        (header(0, -1), "FRAME_ILLEGAL"),
        (header(0, MAX_BODY_BYTES + 1), "FRAME_ILLEGAL"),
        (header(0, 8) + b"\x00" * 8, "DATA_CORRUPT"),
        (header(0, 8) + b"\x7f" * 8, "DATA_CORRUPT"),
        (header(0, 100) + (100).to_bytes(4, "big") + b"\x01" * 96, "DATA_CORRUPT"),
    ],
)
def test_bytes_that_are_no_log_are_refused_and_leave_nothing(
    stores: tuple[Store, Store], data: bytes, code: str
) -> None:
    _, slave = links(stores)
    slave.begin()
    with pytest.raises(LinkClosed, match=code):
        slave.receive(data, 0.0)
    assert stores[1].watermarks()[0] == 0


def test_both_say_something_every_five_seconds_and_give_up_after_twenty(stores: tuple[Store, Store]) -> None:
    send(stores[0], 1)
    master, slave = links(stores)
    master.receive(b"".join(slave.begin()), 0.0)
    while pieces := master.pump(0.0):
        assert len(pieces[1]) <= TRANSFER_BYTES
        slave.receive(b"".join(pieces), 0.0)
    heartbeat = master.pump(5.0)
    assert heartbeat == [header(master.sent, 0)]
    assert slave.receive(heartbeat[0], 5.0)
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        master.pump(20.0)
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        slave.report(25.0)
