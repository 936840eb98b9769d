"""A group's leases at several brokers: held while one of them is, lost when one is another driver's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakemq.client import Client, Lease
from lakemq.client.group_lease import GroupLease, Holder
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

TTL_MS = 3_600_000  # the renewing threads never wake up within a test


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


class Alive:
    def assess(self, holder: str) -> Holder:
        return Holder.ALIVE

    def advice(self, holder: str) -> str:
        return "stop it"


class Driver:
    """A driver over brokers a and b, and its clock."""

    def __init__(self, a: Broker, b: Broker, owner: str = "me") -> None:
        self.now = 100.0
        self.brokers = {"broker-b": b, "broker-a": a}
        self.leases = GroupLeases(
            {name: self._lease(broker, owner) for name, broker in self.brokers.items()},
            outage_timeout_s=0.0,
            clock=lambda: self.now,
        )

    def _lease(self, broker: Broker, owner: str) -> GroupLease:
        client = cast(Client, cast(Any, broker))
        return GroupLease(client, "g", owner, Alive(), TTL_MS, outage_timeout_s=0.0, clock=lambda: self.now)


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


def test_a_driver_that_was_overtaken_at_one_broker_has_lost_the_group() -> None:
    a, b = Broker(), Broker()
    driver = Driver(a, b)
    driver.leases.acquire()
    b.owner = "another"
    driver.now += TTL_MS / 1000
    with pytest.raises(LakeMQError, match="LEASE_CONFLICT"):
        driver.leases.check()
    driver.leases.release()


def test_a_start_without_one_broker_asks_it_later_and_one_without_any_fails() -> None:
    a, b = Broker(), Broker()
    b.away = True
    driver = Driver(a, b)
    assert driver.leases.acquire() == 1
    assert driver.leases.epoch_at("broker-b") is None
    b.away = False
    driver.leases.confirm()
    assert driver.leases.epoch_at("broker-b") == 1
    driver.leases.release()
    a.away = b.away = True
    with pytest.raises(Unavailable):
        Driver(a, b).leases.acquire()
