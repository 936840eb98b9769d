"""A slave that is far behind comes nearer at a rate, and whoever is near is not held back.

Contract: bytes per second are those of the setting, shared by all that are far; what the log grows by comes
on top; senders of a synchronous master that wait for a far slave do not wait for the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ha_replicator.master.catch_up import AHEAD_BYTES, NEAR_BYTES, TAIL_BYTES, CatchUp, CatchUpRate
from ha_replicator.master.replicas import Replicas
from tests.support.linked_brokers import SOON_MS, NotedMemory, Pair, master_link, open_store, slave_link
from tests.support.model_log import ModelLog

MIB = 1 << 20
PIECE = 128 << 10


@dataclass
class Follower:
    """A link, as far as the rate looks at it."""

    sent: int = 0
    bootstraps: bool = False


def rate_of(*links: Follower, needed: int = 0, mib_per_s: float = 8) -> CatchUpRate:
    replicas = Replicas(ModelLog(is_master=True), needed=needed)
    replicas.links = list(links)  # type: ignore[arg-type]
    return CatchUpRate(mib_per_s * MIB, replicas)


def sent_within(seconds: float, rate: CatchUpRate, link: Follower, *, end: int, grows: float = 0) -> int:
    """Sends to a follower whenever it may, looking each 10 ms; returns how much."""
    catch_up, begun = CatchUp(rate, NotedMemory()), link.sent
    for tick in range(int(seconds * 100)):
        now = 100 + tick / 100
        while catch_up.look(link.sent, end + int(grows * tick / 100), now) and link.sent < end:
            catch_up.took(PIECE, link.sent, end + int(grows * tick / 100), now)
            link.sent += PIECE
    return link.sent - begun


@pytest.mark.parametrize("mib_per_s", [1, 8])
def test_a_far_slave_gets_the_rate(mib_per_s: int) -> None:
    link = Follower()
    sent = sent_within(10, rate_of(link, mib_per_s=mib_per_s), link, end=1024 * MIB)
    assert 0.75 * mib_per_s * 10 * MIB < sent <= mib_per_s * 10 * MIB + PIECE


def test_what_the_log_grows_by_comes_on_top() -> None:
    link = Follower()
    sent = sent_within(10, rate_of(link, mib_per_s=4), link, end=1024 * MIB, grows=50 * MIB)
    assert sent > (50 + 3) * 10 * MIB, "it comes nearer"
    assert sent <= (50 + 4) * 10 * MIB + PIECE


def test_slaves_that_are_far_share_the_rate() -> None:
    links = Follower(), Follower(), Follower(sent=1024 * MIB)
    sent = sent_within(10, rate_of(*links), links[0], end=1024 * MIB)
    assert 0.75 * 40 * MIB < sent <= 40 * MIB + PIECE, "of two"


def test_the_last_bytes_of_a_slave_that_is_near_come_at_once() -> None:
    link = Follower(sent=60 * MIB)
    assert sent_within(0.02, rate_of(link), link, end=64 * MIB) == 4 * MIB


@pytest.mark.parametrize(
    ("others", "held"),
    [((), False), ((64 * MIB,), True), ((64 * MIB, 64 * MIB), True)],
    ids=["the only one", "one is near", "two are near"],
)
def test_a_slave_that_senders_wait_for_is_not_held_back(others: tuple[int, ...], held: bool) -> None:
    link = Follower()
    rate = rate_of(link, *[Follower(sent=sent) for sent in others], needed=1)
    assert (sent_within(0.1, rate, link, end=64 * MIB) < 8 * MIB) is held


def test_a_slave_is_held_back_no_more_once_senders_wait_for_it() -> None:
    near, link = Follower(sent=64 * MIB), Follower()
    rate = rate_of(link, near, needed=1)
    catch_up = CatchUp(rate, NotedMemory())
    assert catch_up.look(0, 64 * MIB, 0.0)
    catch_up.took(32 * MIB, 0, 64 * MIB, 0.0)
    assert not catch_up.look(0, 64 * MIB, 1.0)
    near.bootstraps = True  # as one that is gone
    assert catch_up.look(0, 64 * MIB, 1.0)


def test_a_slave_that_makes_its_store_is_none_that_senders_wait_for() -> None:
    link = Follower()
    rate = rate_of(link, Follower(sent=64 * MIB, bootstraps=True), needed=1)
    assert sent_within(0.1, rate, link, end=64 * MIB) == 64 * MIB


def test_what_is_sent_next_is_in_memory_and_what_was_sent_far_behind_the_end_leaves_it() -> None:
    end, piece, memory = 1024 * MIB, MIB, NotedMemory()
    catch_up = CatchUp(rate_of(Follower()), memory)
    for sent in range(0, end, piece):
        catch_up.took(piece, sent, end, 0.0)
        assert memory.fetched[-1][1] >= min(sent + 2 * MIB, end - NEAR_BYTES)
    for ranges in (memory.fetched, memory.gone):
        assert ranges[0][0] == 0
        assert [begin for begin, _ in ranges[1:]] == [behind for _, behind in ranges[:-1]], "without a hole"
        assert all(behind - begin <= AHEAD_BYTES for begin, behind in ranges)
    assert end - TAIL_BYTES - 4 * MIB < memory.gone[-1][1] <= end - TAIL_BYTES


def test_a_link_holds_a_far_slave_back_until_its_time_comes_and_still_speaks(tmp_path: Path) -> None:
    master, slave = open_store(tmp_path / "a"), open_store(tmp_path / "b", "slave")
    for _ in range(12):
        end = master.append_message("t", b"x" * 500_000, queue_id=0).end_offset
    assert master.wait_flushed(end, SOON_MS)
    log = master.replicated_log()
    replicas = Replicas(log, needed=0)
    link = master_link(log, catch_up=CatchUp(CatchUpRate(MIB, replicas), NotedMemory()))
    pair = Pair(link, slave_link(slave.replicated_log()), slave.replicated_log(), replicas)
    pair.settle()
    first = link.sent
    assert 0 < first < end, "one piece, then the rate"
    assert first / MIB == pytest.approx(link.next_deadline(), rel=0.01)
    assert link.pump(link.next_deadline() - 0.001) == []
    pieces = link.pump(link.next_deadline())
    assert pieces
    pair.to_slave += b"".join(pieces)
    pair.settle(5.9)
    assert link.lag() > 0
    pair.settle(10.0)
    for second in range(11, 30):
        pair.settle(float(second))
    assert slave.wait_flushed(end, SOON_MS)
    master.close()
    slave.close()
