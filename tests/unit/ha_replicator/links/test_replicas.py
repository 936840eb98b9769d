"""Which slaves count: those that are here, reported lately and have the master's epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ha_replicator.master.replicas import Replicas


@dataclass(eq=False)
class Slave:
    """What the master knows of one that follows."""

    broker_id: int | None
    acked: int
    acked_at: float = 0.0
    counts: bool = True
    bootstraps: bool = False
    superseded: bool = False
    following: bool = True
    behind: int = 0

    def lag(self) -> int:
        return self.behind


class Log:
    """Notes how far the log counts."""

    def __init__(self) -> None:
        self.marks: list[int] = []

    def replicated(self, offset: int) -> None:
        self.marks.append(offset)


def replicas_of(needed: int, *slaves: Slave) -> tuple[Replicas, Log]:
    log = Log()
    replicas = Replicas(cast(Any, log), needed=needed)
    for slave in slaves:
        replicas.joined(cast(Any, slave))
    return replicas, log


def test_what_a_slave_has_counts_as_soon_as_it_follows() -> None:
    _, log = replicas_of(2, Slave(1, 500), Slave(2, 300))
    assert log.marks == [300]


def test_a_slave_that_left_is_not_in_reach_and_counts_no_more() -> None:
    gone, here = Slave(1, 500), Slave(2, 300)
    replicas, log = replicas_of(2, gone, here)
    replicas.left(cast(Any, gone))
    here.acked = gone.acked = 900
    replicas.reported()
    assert log.marks == [300], "one of two is here"
    assert not replicas.in_reach(0.0)
    replicas.left(cast(Any, gone))


def test_a_slave_that_reported_lately_is_in_reach_however_long_the_master_runs() -> None:
    replicas, _ = replicas_of(1, Slave(1, 0, acked_at=1_000.0))
    assert replicas.in_reach(1_019.0)
    assert not replicas.in_reach(1_020.0)


def test_readers_are_sent_to_the_first_slave_that_has_all_but_the_newest() -> None:
    far = Slave(1, 0, behind=(256 << 20) + 1)
    silent, new, joining = (
        Slave(2, 0, acked_at=-20.0),
        Slave(3, 0, bootstraps=True),
        Slave(4, 0, following=False),
    )
    nameless, near, other = Slave(None, 0), Slave(6, 0, behind=256 << 20), Slave(5, 0)
    replicas, _ = replicas_of(0, far, silent, new, joining, nameless)
    assert replicas.to_read_from(0.0) is None
    for slave, chosen in ((near, 6), (other, 5)):
        replicas.joined(cast(Any, slave))
        assert replicas.to_read_from(0.0) == chosen
