"""The group's lease: who is refused, who is waited for, and what a broker's absence does to its holder."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

from jobs.runtime.job_lease import job_lease
from jobs.runtime.lease_owner import LeaseOwner
from lakemq.client import Lease
from lakemq.client.group_lease import KEPT_FOR_S, GroupLease
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

TTL_MS = 3_600_000  # the renewing thread never wakes up within a test


class Broker:
    """The broker's side of one lease, as store_native does it: an owner keeps its epoch."""

    def __init__(self) -> None:
        self.owner = ""
        self.held = False
        self.epoch = 0
        self.expires_at = 10**15
        self.fails: list[LakeMQError] = []
        self.asked = 0

    def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
        self.asked += 1
        if self.fails:
            raise self.fails.pop(0)
        if self.held and owner != self.owner:
            raise InvalidRequest("LEASE_CONFLICT", "held", owner=self.owner, expires_at=self.expires_at)
        self.epoch += owner != self.owner
        self.owner, self.held = owner, True
        return Lease(self.epoch, self.expires_at)

    def release_lease(self, group: str, owner: str) -> None:
        if owner == self.owner:
            self.held = False


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lease_of(broker: Any, owner: LeaseOwner, clock: Clock | None = None) -> GroupLease:
    return job_lease(broker, "g", owner, TTL_MS, outage_timeout_s=0.5, clock=clock or Clock())


@pytest.fixture
def me() -> LeaseOwner:
    return LeaseOwner.here("checkpoint-a")


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_an_owner_is_read_from_its_text(me: LeaseOwner) -> None:
    assert LeaseOwner.parse(str(me)) == me
    assert not me.is_dead()
    assert me.pid == os.getpid()
    for foreign in ("", "somebody", "spark/host/1/abc", f"{me}x"):
        assert LeaseOwner.parse(foreign) is None


def test_the_second_process_of_a_copied_checkpoint_is_refused(me: LeaseOwner) -> None:
    broker = Broker()
    first = lease_of(broker, dataclasses.replace(me, pid=os.getppid(), started=_started(os.getppid())))
    first.acquire()
    with pytest.raises(InvalidRequest, match="copy of it"):
        lease_of(broker, me).acquire()
    first.release()
    second = lease_of(broker, me)
    second.acquire()
    assert second.epoch == first.epoch + 1
    second.release()


def _started(pid: int) -> int:
    from delta_tables.ledger.writer_lock import started

    return started(pid) or 0


def test_a_holder_that_died_on_this_machine_is_not_waited_for(me: LeaseOwner) -> None:
    broker = Broker()
    dead = dataclasses.replace(me, checkpoint="another", pid=ended_process(), started=1)
    broker.acquire_lease("g", str(dead), TTL_MS)
    lease = lease_of(broker, me)
    lease.acquire()
    assert (broker.owner, lease.epoch) == (str(me), 2)
    lease.release()


def test_a_process_that_got_the_number_of_a_dead_holder_is_not_taken_for_it(me: LeaseOwner) -> None:
    assert not me.is_dead()
    earlier = dataclasses.replace(me, checkpoint="another", started=me.started - 1)
    broker = Broker()
    broker.acquire_lease("g", str(earlier), TTL_MS)
    lease = lease_of(broker, me)
    lease.acquire()
    assert (broker.owner, lease.epoch) == (str(me), 2)
    lease.release()


def test_a_holder_on_another_machine_is_waited_for_only_with_our_checkpoint(me: LeaseOwner) -> None:
    away = dataclasses.replace(me, machine="elsewhere.1.2")
    broker = Broker()
    broker.expires_at = 0
    broker.acquire_lease("g", str(dataclasses.replace(away, checkpoint="another")), TTL_MS)
    with pytest.raises(InvalidRequest, match="use another group"):
        lease_of(broker, me).acquire()

    class RunsOut(Broker):
        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.held = self.held and self.asked < 3
            self.expires_at = self.asked % 2  # no renewal: the broker's two clocks tick apart
            return super().acquire_lease(group, owner, ttl_ms)

    runs_out = RunsOut()
    runs_out.expires_at = 0
    runs_out.acquire_lease("g", str(away), TTL_MS)
    lease = lease_of(runs_out, me)
    lease.acquire()
    assert lease.epoch == 2
    lease.release()

    class Renewed(Broker):
        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.expires_at = self.asked * TTL_MS // 3
            return super().acquire_lease(group, owner, ttl_ms)

    alive = Renewed()
    alive.acquire_lease("g", str(away), TTL_MS)
    with pytest.raises(InvalidRequest, match="copy of it"):
        lease_of(alive, me).acquire()


def test_a_holder_named_by_our_checkpoint_alone_is_waited_for(me: LeaseOwner) -> None:
    """The release before named the checkpoint only."""

    class RunsOut(Broker):
        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.held = self.held and self.asked < 3
            self.expires_at = self.asked % 2  # no renewal: the broker's two clocks tick apart
            return super().acquire_lease(group, owner, ttl_ms)

    broker = RunsOut()
    broker.expires_at = 0
    broker.acquire_lease("g", me.checkpoint, TTL_MS)
    lease = lease_of(broker, me)
    lease.acquire()
    assert (broker.owner, lease.epoch) == (str(me), 2)
    lease.release()

    class Renewed(Broker):
        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.expires_at = self.asked * TTL_MS // 3
            return super().acquire_lease(group, owner, ttl_ms)

    alive = Renewed()
    alive.acquire_lease("g", me.checkpoint, TTL_MS)
    with pytest.raises(InvalidRequest, match="copy of it"):
        lease_of(alive, me).acquire()

    foreign = Broker()
    foreign.acquire_lease("g", "another-checkpoint", TTL_MS)
    with pytest.raises(InvalidRequest, match="use another group"):
        lease_of(foreign, me).acquire()
    assert foreign.asked == 2


def test_a_lease_that_ran_out_while_the_broker_was_away_is_taken_again(me: LeaseOwner) -> None:
    broker, clock = Broker(), Clock()
    lease = lease_of(broker, me, clock)
    lease.acquire()
    lease.check()
    assert broker.asked == 1
    clock.now += TTL_MS / 1000 + 1
    broker.held = False
    broker.fails = [Unavailable("SERVICE_NOT_AVAILABLE", "away"), Unavailable("SYSTEM_BUSY", "starting")]
    lease.check()
    assert (broker.owner, lease.epoch, broker.asked) == (str(me), 1, 4)
    lease.release()


def test_a_lease_somebody_else_took_meanwhile_is_lost_for_good(me: LeaseOwner) -> None:
    for gone_again in (False, True):
        broker, clock = Broker(), Clock()
        lease = lease_of(broker, me, clock)
        lease.acquire()
        clock.now += TTL_MS / 1000 + 1
        broker.held = False
        broker.acquire_lease("g", "somebody", TTL_MS)
        if gone_again:
            broker.release_lease("g", "somebody")
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
                lease.check()
        lease.release()


def test_a_job_that_stops_does_not_wait_for_a_broker_that_is_away(me: LeaseOwner) -> None:
    broker = Broker()
    lease = job_lease(broker, "g", me, TTL_MS, outage_timeout_s=3_600)  # type: ignore[arg-type]
    lease.acquire()
    broker.fails = [Unavailable("SERVICE_NOT_AVAILABLE", "away") for _ in range(3)]
    lease.stop_retrying()
    with pytest.raises(Unavailable, match="could not be renewed"):
        lease.confirm()
    lease.release()


def test_a_broker_that_stays_away_for_too_long_ends_the_lease(me: LeaseOwner) -> None:
    class Ticking(Clock):
        def __call__(self) -> float:
            self.now += 0.1
            return self.now

    broker = Broker()
    lease = lease_of(broker, me, Ticking())
    lease.acquire()
    broker.fails = [Unavailable("SERVICE_NOT_AVAILABLE", "away") for _ in range(20)]
    with pytest.raises(Unavailable, match="could not be renewed"):
        lease.confirm()
    lease.release()


def test_an_answer_that_came_too_late_is_no_loss(me: LeaseOwner) -> None:
    broker = Broker()
    lease = lease_of(broker, me)
    lease.acquire()
    broker.fails = [InvalidRequest("REQUEST_TIMEOUT", "the body was late")]
    lease.confirm()
    assert (lease.check(), broker.asked) == (1, 3)
    lease.release()


def test_a_lease_is_sure_from_when_it_was_asked_for_and_not_from_the_answer(me: LeaseOwner) -> None:
    clock = Clock()

    class Slow(Broker):
        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            lease = super().acquire_lease(group, owner, ttl_ms)
            clock.now += 9.0  # the answer's way
            return lease

    lease = lease_of(Slow(), me, clock)
    lease.renew()
    clock.now += KEPT_FOR_S - 9.0 - 0.1
    assert lease.is_valid()
    clock.now += 0.2
    assert not lease.is_valid(), "another driver may have had the group since"
