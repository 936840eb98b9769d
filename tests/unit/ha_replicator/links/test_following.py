"""A slave's log becomes its master's, and what counts is what the slave has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.master.replicas import MAX_FALL_BEHIND_BYTES, Replicas
from ha_replicator.wire.credentials import Credentials
from ha_replicator.wire.handshake import Refusal, frame_of
from store_native import Store
from tests.support.linked_brokers import (
    SOON_MS,
    Pair,
    identity,
    master_link,
    open_store,
    slave_link,
)


class Brokers:
    """Two stores; connections between them."""

    def __init__(self, root: Path, on_exit: ExitStack, *, needed: int = 1) -> None:
        self._root = root
        self._on_exit = on_exit
        self.master = self.open("a", "master", asks_replicas=needed > 0)
        self.slave = self.open("b", "slave")
        self.replicas = Replicas(self.master.replicated_log(), needed=needed)

    def open(self, name: str, role: str, **options: object) -> Store:
        store = open_store(self._root / name, role, **options)  # type: ignore[arg-type]
        self._on_exit.callback(store.close)
        return store

    def connect(self, master: dict[str, Any] | None = None, **slave: Any) -> Pair:
        log = self.slave.replicated_log()
        link = master_link(self.master.replicated_log(), **(master or {}))
        return Pair(link, slave_link(log, **slave), log, self.replicas)

    def send(self, *bodies: str, topic: str = "t") -> int:
        end = 0
        for body in bodies:
            end = self.master.append_message(topic, body.encode(), queue_id=0).end_offset
        assert self.master.wait_flushed(end, SOON_MS)
        return end


def settle(brokers: Brokers, pair: Pair, end: int) -> None:
    """Carries until the slave has the log up to ``end``, which it flushes beside."""
    pair.settle()
    assert brokers.slave.wait_flushed(end, SOON_MS)
    pair.settle()


def files(store: Store) -> dict[str, bytes]:
    directory = Path(store.path) / "commitlog"
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def bodies(store: Store, topic: str = "t") -> list[str]:
    import json

    found = json.loads(store.read_json(topic, 0, 0, max_messages=10_000, max_bytes=1 << 30).messages)
    return [message["body"] for message in found]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as on_exit:
        yield Brokers(tmp_path, on_exit)


@pytest.mark.parametrize("at_once", [1, 7, 100_000])
def test_slave_has_the_log_byte_for_byte_however_the_bytes_arrive(brokers: Brokers, at_once: int) -> None:
    end = brokers.send(*[f"message {at} {'x' * 40}" for at in range(30 if at_once < 100 else 3000)])
    pair = brokers.connect()
    pair.settle(at_once=at_once)
    assert brokers.slave.wait_flushed(end, SOON_MS)
    pair.settle(at_once=at_once)
    assert brokers.master.wait_dispatched(end, SOON_MS)
    pair.settle(LinkLimits().confirmed_s, at_once=at_once)
    assert brokers.slave.wait_dispatched(end, SOON_MS)
    assert files(brokers.slave) == files(brokers.master)
    assert bodies(brokers.slave) == bodies(brokers.master)
    assert pair.master.acked == pair.master.sent == end
    assert pair.slave.master_end == end


def test_what_is_confirmed_goes_with_the_next_range_or_by_itself_after_a_moment(brokers: Brokers) -> None:
    one = brokers.send("one")
    pair = brokers.connect()
    settle(brokers, pair, one)
    assert brokers.master.wait_dispatched(one, SOON_MS)
    pair.settle()
    assert brokers.slave.watermarks()[3] == 0, "no frame for it alone"
    two = brokers.send("two")
    settle(brokers, pair, two)
    assert brokers.slave.watermarks()[3] == one, "the range of the second told it"
    assert brokers.master.wait_dispatched(two, SOON_MS)
    moment = LinkLimits().confirmed_s
    assert pair.master.next_deadline() == moment
    assert not pair.master.pump(moment * 0.9)
    pair.settle(moment)
    assert brokers.slave.wait_dispatched(two, SOON_MS)


def test_message_counts_only_when_a_slave_has_flushed_it(brokers: Brokers) -> None:
    end = brokers.send("one")
    assert brokers.master.watermarks() == (end, end, 0, 0), "no slave: flushed, not confirmed"
    pair = brokers.connect()
    settle(brokers, pair, end)
    assert brokers.master.wait_dispatched(end, SOON_MS)
    assert bodies(brokers.master) == ["one"]
    later = brokers.send("two")
    assert brokers.master.watermarks()[3] == end
    pair.carry()  # the range is on its way
    assert brokers.master.watermarks()[3] == end
    settle(brokers, pair, later)
    assert brokers.master.wait_dispatched(later, SOON_MS)


def test_unconfirmed_tail_stays_unseen_over_a_restart_of_the_master(brokers: Brokers) -> None:
    end = brokers.send("one")
    brokers.master.close()
    brokers.master = brokers.open("a", "master", asks_replicas=True)
    brokers.replicas = Replicas(brokers.master.replicated_log(), needed=1)
    assert brokers.master.watermarks() == (end, end, 0, 0)
    pair = brokers.connect()
    settle(brokers, pair, end)
    assert brokers.master.wait_dispatched(end, SOON_MS)
    assert bodies(brokers.master) == ["one"]


def test_slave_that_comes_back_goes_on_where_it_was(brokers: Brokers) -> None:
    end = brokers.send("one", "two")
    settle(brokers, brokers.connect(), end)
    end = brokers.send("three")
    brokers.slave.close()
    brokers.slave = brokers.open("b", "slave")
    pair = brokers.connect()
    settle(brokers, pair, end)
    assert brokers.master.wait_dispatched(end, SOON_MS)
    assert files(brokers.slave) == files(brokers.master)


def test_promoted_slave_is_the_master_and_the_old_one_loses_what_nobody_took(
    brokers: Brokers, tmp_path: Path
) -> None:
    end = brokers.send("one", "two")
    pair = brokers.connect()
    settle(brokers, pair, end)
    assert brokers.master.wait_dispatched(end, SOON_MS)
    lost = brokers.send("nobody takes it")
    assert brokers.slave.replicated_log().become_master(2, False) == end
    old = brokers.master
    old.close()
    brokers.master, brokers.slave = brokers.slave, brokers.open("a", "slave")
    brokers.replicas = Replicas(brokers.master.replicated_log(), needed=0)
    assert brokers.slave.watermarks()[0] == lost
    new_end = brokers.send("three")
    pair = brokers.connect()
    settle(brokers, pair, new_end)
    assert brokers.slave.wait_dispatched(new_end, SOON_MS)
    assert bodies(brokers.slave) == ["one", "two", "three"] == bodies(brokers.master)
    assert files(brokers.slave) == files(brokers.master)
    kept = list((Path(brokers.slave.path) / "lakemq" / "cut").iterdir())
    assert [b"nobody takes it" in path.read_bytes() for path in kept] == [True]


def test_master_hears_of_a_higher_epoch_and_takes_no_report(brokers: Brokers) -> None:
    end = brokers.send("one")
    settle(brokers, brokers.connect(), end)
    brokers.slave.replicated_log().become_master(2, False)
    brokers.slave.close()
    brokers.slave = brokers.open("b", "slave")
    pair = brokers.connect()
    with pytest.raises(LinkClosed, match="EPOCH_OVER") as closed:
        pair.settle()
    assert closed.value.epoch == 2
    assert not pair.master.following


@pytest.mark.parametrize(
    ("secret", "code"), [(b"another secret than that", "NO_PERMISSION"), (None, "NO_PERMISSION")]
)
def test_slave_without_the_secret_gets_nothing(brokers: Brokers, secret: bytes | None, code: str) -> None:
    end = brokers.send("one")
    pair = brokers.connect(credentials=Credentials(secret))
    with pytest.raises(LinkClosed, match=code):
        pair.settle()
    assert not pair.master.following
    assert brokers.master.watermarks() == (end, end, 0, 0)
    assert brokers.slave.watermarks()[0] == 0


@pytest.mark.parametrize("far", ["slave", "master"])
def test_without_a_secret_a_peer_of_another_machine_is_refused(brokers: Brokers, far: str) -> None:
    """By whichever side sees it: a tunnel's end is on one machine for one of them only."""
    brokers.send("one")
    none = {"credentials": Credentials(None)}
    pair = brokers.connect({**none, "local_peer": far != "slave"}, **none, local_peer=far != "master")
    with pytest.raises(LinkClosed, match=rf"NO_PERMISSION: without a cluster secret only {far}s of this"):
        pair.settle()
    assert not pair.master.following
    assert brokers.slave.watermarks()[0] == 0
    local = brokers.connect(none, **none)
    local.settle()
    assert local.master.following, "on one machine none is needed"


def test_logs_of_two_brokers_of_one_name_are_not_mixed(brokers: Brokers, tmp_path: Path) -> None:
    brokers.send("one of this", "and more")
    other = open_store(tmp_path / "c")
    other.append_message("t", b"one of that", queue_id=0)
    other.close()
    brokers.slave.close()
    brokers.slave = open_store(tmp_path / "c", "slave")
    try:
        pair = brokers.connect()
        with pytest.raises(LinkClosed, match=r"LOG_DIVERGED|OFFSET_ILLEGAL"):
            pair.settle()
        assert bodies(brokers.slave) == ["one of that"]
    finally:
        brokers.slave.close()


def test_broker_of_another_name_or_cluster_is_refused(brokers: Brokers) -> None:
    for me in (identity(1, broker_name="b"), identity(1, cluster="d")):
        pair = brokers.connect(me=me)
        with pytest.raises(LinkClosed, match="WRONG_BROKER"):
            pair.settle()


def test_slave_is_silent_too_long_and_so_is_a_master(brokers: Brokers) -> None:
    pair = brokers.connect()
    pair.settle()
    assert pair.master.following
    assert pair.slave.following
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        pair.master.pump(20.0)
    with pytest.raises(LinkClosed, match="TIMEOUT"):
        pair.slave.report(20.0)


def test_heartbeats_keep_a_quiet_connection(brokers: Brokers) -> None:
    pair = brokers.connect()
    for second in range(0, 100, 5):
        pair.settle(float(second))
        assert pair.master.next_deadline() <= second + 5
    assert pair.master.following
    assert pair.slave.following


def test_slave_whose_store_has_another_shape_is_refused_before_a_byte(brokers: Brokers) -> None:
    brokers.send("one")
    pair = brokers.connect(shape="log files of another size")
    with pytest.raises(LinkClosed, match=r"ARGUMENT_ILLEGAL.*another size.*alike"):
        pair.settle()
    assert brokers.slave.watermarks()[0] == 0


def test_epoch_that_nobody_reaches_is_not_believed(brokers: Brokers) -> None:
    brokers.slave.replicated_log().become_slave((1 << 62) + 1)
    pair = brokers.connect()
    with pytest.raises(LinkClosed, match="EPOCH_ILLEGAL") as closed:
        pair.settle()
    assert closed.value.epoch == 0, "the master stays one"


def test_slave_that_comes_twice_under_one_id_counts_once_and_the_earlier_is_ended(brokers: Brokers) -> None:
    end = brokers.send("one")
    first, second = brokers.connect(), brokers.connect()
    first.settle()
    second.settle()
    assert brokers.replicas.links == [second.master]
    with pytest.raises(LinkClosed, match="SUPERSEDED"):
        first.master.pump(0.0)
    settle(brokers, second, end)
    assert brokers.master.wait_dispatched(end, SOON_MS)


def test_what_a_slave_holds_of_earlier_epochs_counts_when_it_has_noted_the_masters_own(
    brokers: Brokers,
) -> None:
    """Otherwise it could lose against an older log in the choice of the next master."""
    end = brokers.send("nobody took it")
    brokers.master.close()
    brokers.master = brokers.open("a", "slave")
    log = brokers.master.replicated_log()
    assert log.become_master(65, True) == end
    brokers.replicas = Replicas(log, needed=1)
    pair = brokers.connect()
    while brokers.slave.watermarks()[0] < end:
        pair.carry()
    assert brokers.slave.wait_flushed(end, SOON_MS)
    said = b"".join(pair.slave.report(1.0))
    pair.master.receive(bytes(pair.to_master) + said, 1.0)
    pair.to_master.clear()
    brokers.replicas.reported()
    assert pair.master.acked == end
    assert brokers.slave.replicated_log().epochs() == [(1, 0)]
    assert brokers.master.watermarks()[3] == 0
    pair.settle(1.0)
    assert brokers.slave.replicated_log().epochs() == [(1, 0), (65, end)]
    assert brokers.master.watermarks()[3] == end


@pytest.mark.parametrize(("epoch", "heard"), [(1, 0), (2, 2), ((1 << 63) - 1, 0)])
def test_refusal_of_a_slave_ends_a_master_by_a_higher_epoch_in_reach_only(
    brokers: Brokers, epoch: int, heard: int
) -> None:
    pair = brokers.connect()
    pair.settle()
    refusal = frame_of(Refusal(code="EPOCH_OVER", detail="it is over", epoch=epoch))
    with pytest.raises(LinkClosed, match="EPOCH_OVER") as closed:
        pair.master.receive(b"".join(refusal.pieces()), 0.0)
    assert closed.value.epoch == heard


def test_slave_knows_how_much_of_its_masters_log_it_lacks(brokers: Brokers) -> None:
    brokers.master.close()
    brokers.master = brokers.open("c", "master")
    end = brokers.send(*["x" * 1000] * 60)
    pair = brokers.connect()
    while brokers.slave.watermarks()[0] == 0:
        assert pair.slave.master_end is None, "nothing was said of it"
        pair.carry()
    assert brokers.slave.watermarks()[0] < end
    assert pair.slave.master_end == end


def test_message_counts_when_as_many_slaves_have_it_as_are_asked(tmp_path: Path) -> None:
    with ExitStack() as on_exit:
        brokers = Brokers(tmp_path, on_exit)
        brokers.replicas = Replicas(brokers.master.replicated_log(), needed=2)
        third = brokers.open("c", "slave")
        end = brokers.send("one", "two")
        first = brokers.connect()
        settle(brokers, first, end)
        assert first.master.acked == end
        assert brokers.master.watermarks()[3] == 0, "one of two has it"
        assert not brokers.replicas.in_reach(0.0)
        log = third.replicated_log()
        second = Pair(
            master_link(brokers.master.replicated_log()),
            slave_link(log, me=identity(2), nonce="4" * 32),
            log,
            brokers.replicas,
        )
        second.settle()
        assert third.wait_flushed(end, SOON_MS)
        second.settle()
        assert brokers.replicas.in_reach(0.0)
        assert brokers.master.watermarks()[3] == end
        later = brokers.send("three")
        second.settle()
        assert third.wait_flushed(later, SOON_MS)
        second.settle()
        assert second.master.acked == later
        assert brokers.master.watermarks()[3] == end, "the other one lacks it"
        settle(brokers, first, later)
        assert brokers.master.watermarks()[3] == later


def test_slave_further_behind_than_the_bound_is_not_in_reach(brokers: Brokers) -> None:
    pair = brokers.connect()
    pair.settle()
    lag = brokers.send("x" * 2000)
    brokers.replicas = Replicas(brokers.master.replicated_log(), needed=1, max_fall_behind_bytes=lag)
    brokers.replicas.joined(pair.master)
    assert pair.master.lag() == lag
    assert brokers.replicas.in_reach(0.0), "at the bound it is"
    more = brokers.send("one byte more")
    assert pair.master.lag() > lag
    assert not brokers.replicas.in_reach(0.0), "a sender hears SLAVE_NOT_AVAILABLE instead of waiting"
    settle(brokers, pair, more)
    assert brokers.replicas.in_reach(0.0)
    assert not brokers.replicas.in_reach(20.0), "nor is one that is silent"


def test_bound_of_a_slave_that_is_behind_is_rocketmqs() -> None:
    assert MAX_FALL_BEHIND_BYTES == 256 << 20
