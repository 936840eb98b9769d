"""A group's leases at several brokers: held while one of them is; of two drivers one goes on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakemq.client import Client, Lease
from lakemq.client.group_lease import KEPT_FOR_S, GroupLease, Holder
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from tests.support.waiting import wait_until

TTL_MS = 3_600_000  # the renewing threads never wake up within a test
SHORT_TTL_MS = 50  # they ask all the time, and what they hold ends by the driver's clock only


class Broker:
    """The broker's side of one lease: an owner keeps its epoch."""

    def __init__(self, epoch: int = 0) -> None:
        self.owner = ""
        self.epoch = epoch
        self.away = False

    def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
        if self.away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
        if self.owner not in ("", owner):
            raise InvalidRequest("LEASE_CONFLICT", "held", owner=self.owner, expires_at=10**15)
        self.epoch += owner != self.owner
        self.owner = owner
        return Lease(self.epoch, 10**15)

    def release_lease(self, group: str, owner: str) -> None:
        if not self.away and owner == self.owner:
            self.owner = ""


class Policy:
    """What is made of any other holder."""

    def __init__(self, verdict: Holder) -> None:
        self._verdict = verdict

    def assess(self, holder: str) -> Holder:
        return self._verdict

    def advice(self, holder: str) -> str:
        return "stop it"


class Driver:
    """A driver over brokers a and b, its clock, and which brokers it cannot reach."""

    def __init__(
        self,
        a: Broker,
        b: Broker,
        owner: str = "me",
        *,
        ttl_ms: int = TTL_MS,
        verdict: Holder = Holder.ALIVE,
    ) -> None:
        self.now = 100.0
        self.brokers = {"broker-b": b, "broker-a": a}
        self.away: set[str] = set()

        def lease_at(name: str) -> GroupLease:
            client = cast(Client, self._client_of(name))
            return GroupLease(
                *(client, "g", owner, Policy(verdict), ttl_ms), outage_timeout_s=0.0, clock=lambda: self.now
            )

        self.leases = GroupLeases(
            lambda: self.brokers,
            lease_at,
            outage_timeout_s=0.0,
            refused_s=ttl_ms / 1000,
            clock=lambda: self.now,
        )

    def _client_of(self, name: str) -> object:
        class Reached:
            def __getattr__(reached, call: str) -> Any:
                if name in self.away:
                    raise Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
                return getattr(self.brokers[name], call)

        return Reached()

    def holds(self, name: str) -> bool:
        """Whether the group is held at a broker; looks as each batch does."""
        self.leases.check()
        return self.leases.epoch_at(name) is not None

    def has_lost(self) -> bool:
        """Whether the group is another driver's."""
        try:
            self.leases.check()
        except LakeMQError as error:
            return error.code == "LEASE_CONFLICT"
        return False


def test_the_group_is_taken_at_every_broker_and_given_back() -> None:
    a, b = Broker(3), Broker(8)
    driver = Driver(a, b)
    assert driver.leases.acquire() == 9
    assert (driver.leases.epoch_at("broker-a"), driver.leases.epoch_at("broker-b")) == (4, 9)
    assert driver.leases.epoch_at("broker-c") is None
    driver.leases.release()
    assert (a.owner, b.owner) == ("", "")


def test_a_broker_that_dies_does_not_take_the_group_away() -> None:
    a, b = Broker(), Broker()
    driver = Driver(a, b)
    driver.leases.acquire()
    a.away = True
    driver.now += TTL_MS / 1000
    assert driver.leases.check() == 1, "b still says so"
    b.away = True
    driver.now += TTL_MS / 1000
    with pytest.raises(Unavailable, match="no lease on the group could be renewed: no connection"):
        driver.leases.check()
    a.away = b.away = False
    driver.leases.release()


def test_another_driver_at_any_broker_is_a_conflict_and_nothing_stays_taken() -> None:
    a, b = Broker(), Broker()
    b.owner = "another"
    driver = Driver(a, b)
    with pytest.raises(LakeMQError, match="LEASE_CONFLICT: group g is being consumed by another; stop it"):
        driver.leases.acquire()
    assert a.owner == ""


def test_of_two_drivers_that_both_hold_brokers_the_one_with_the_first_goes_on() -> None:
    a, b = Broker(), Broker()
    with_a, with_b = (Driver(a, b, owner, ttl_ms=SHORT_TTL_MS) for owner in ("with-a", "with-b"))
    with_a.away, with_b.away = {"broker-b"}, {"broker-a"}
    for driver in (with_a, with_b):
        driver.leases.acquire()
    for driver in (with_a, with_b):  # each has one by now: the first would take the other's as well
        driver.away = set()

    def is_with_b_lost() -> bool:
        for driver in (with_a, with_b):
            driver.now += SHORT_TTL_MS / 1000
        assert not with_a.has_lost()
        return with_b.has_lost()

    wait_until(is_with_b_lost)
    with_b.leases.release()
    wait_until(lambda: with_a.holds("broker-b"))
    with_a.leases.release()
    assert (a.owner, b.owner) == ("", "")


def test_a_second_driver_that_is_refused_does_not_end_the_first(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Broker(), Broker()
    first, second = (Driver(a, b, owner, ttl_ms=SHORT_TTL_MS) for owner in ("first", "second"))
    first.away = {"broker-a"}
    first.leases.acquire()
    a.acquire_lease("g", "second", SHORT_TTL_MS)  # it is about to be refused by broker-b
    first.away = set()

    def is_said() -> bool:
        assert not first.has_lost()
        return "broker broker-a: LEASE_CONFLICT" in caplog.text

    wait_until(is_said)
    a.release_lease("g", "second")
    with pytest.raises(LakeMQError, match="LEASE_CONFLICT: group g is being consumed by first"):
        second.leases.acquire()
    wait_until(lambda: first.holds("broker-a"))
    first.leases.release()
    assert (a.owner, b.owner) == ("", "")


def test_a_second_driver_that_was_at_a_broker_for_a_moment_does_not_end_the_first() -> None:
    a, b = Broker(), Broker()
    first = Driver(a, b, "first", ttl_ms=SHORT_TTL_MS)
    first.leases.acquire()
    first.away = {"broker-a"}
    a.owner = ""  # the lease ran out
    a.acquire_lease("g", "second", SHORT_TTL_MS)
    a.release_lease("g", "second")
    first.away = set()

    def has_it_again() -> bool:
        assert not first.has_lost()
        return (first.leases.epoch_at("broker-a") or 0) > 1

    wait_until(has_it_again)
    first.leases.release()


def test_a_driver_that_every_broker_refuses_has_lost_the_group() -> None:
    a, b = Broker(), Broker()
    driver = Driver(a, b)
    driver.leases.acquire()
    a.owner = b.owner = "another"
    driver.now += TTL_MS / 1000
    with pytest.raises(LakeMQError, match="LEASE_CONFLICT"):
        driver.leases.check()
    driver.leases.release()


def test_a_broker_that_comes_later_is_asked_for_the_group_too() -> None:
    driver = Driver(Broker(), Broker())
    driver.leases.acquire()
    c = driver.brokers["broker-c"] = Broker()
    wait_until(lambda: driver.holds("broker-c"))
    assert c.owner == "me"
    driver.leases.release()
    assert c.owner == ""


@pytest.mark.parametrize("verdict", [Holder.DEAD, Holder.MAY_RUN_OUT])
def test_a_dead_drivers_lease_at_a_broker_that_comes_back_ends_nobody(verdict: Holder) -> None:
    class RunsOut(Broker):
        asked = 0

        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.asked += 1
            if self.asked == 3:
                self.owner = ""
            return super().acquire_lease(group, owner, ttl_ms)

    b = RunsOut()
    b.owner = "dead"
    driver = Driver(Broker(), b, ttl_ms=SHORT_TTL_MS, verdict=verdict)
    driver.away = {"broker-b"}
    driver.leases.acquire()
    driver.away = set()
    wait_until(lambda: driver.holds("broker-b"))
    assert b.owner == "me"
    driver.leases.release()


def test_a_start_without_one_broker_asks_it_later_and_one_without_any_fails() -> None:
    driver = Driver(Broker(), Broker())
    driver.away = {"broker-b"}
    assert driver.leases.acquire() == 1
    assert driver.leases.epoch_at("broker-b") is None
    driver.away = set()
    driver.leases.confirm()
    assert driver.leases.epoch_at("broker-b") == 1
    driver.leases.release()
    without = Driver(Broker(), Broker())
    without.away = {"broker-a", "broker-b"}
    with pytest.raises(Unavailable):
        without.leases.acquire()


def test_an_outage_is_said_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    class Counting(Broker):
        refused = 0

        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.refused += self.away
            return super().acquire_lease(group, owner, ttl_ms)

    a = Counting()
    driver = Driver(a, Broker(), ttl_ms=SHORT_TTL_MS)
    driver.leases.acquire()
    for outage in (1, 2):
        a.away = True
        wait_until(lambda end=outage * 5: a.refused >= end)  # type: ignore[misc]
        a.away = False
        wait_until(lambda times=outage: caplog.text.count("is held again") == times)  # type: ignore[misc]
    driver.leases.release()
    said = [record.getMessage() for record in caplog.records]
    assert said == 2 * [
        "the lease on group g could not be renewed, which is tried every 0.01 s: "
        "SERVICE_NOT_AVAILABLE: no connection",
        "the lease on group g is held again, after: SERVICE_NOT_AVAILABLE: no connection",
    ]


def test_a_lease_is_sure_no_longer_than_a_broker_that_starts_again_keeps_it() -> None:
    a, b = Broker(), Broker()
    driver = Driver(a, b)
    driver.leases.acquire()
    driver.now += KEPT_FOR_S - 0.1
    assert not driver.has_lost()
    for broker in (a, b):  # started again; they did not hear of this driver, and gave the group to another
        broker.owner, broker.epoch = "other", 2
    driver.now += 0.1
    assert driver.has_lost()
    driver.leases.release()
