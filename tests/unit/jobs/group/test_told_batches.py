"""A broker is told of each batch for its metrics, and one that does not listen holds nobody up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from jobs.group.batch_report import BatchReport
from jobs.group.told_batches import SILENT_S, ToldBatches
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

REPORT = BatchReport(messages=10, retried=2, given_up=1, seconds=1.5, behind=None)
AWAY = Unavailable("SERVICE_NOT_AVAILABLE", "nobody answers")
OLD = InvalidRequest("REQUEST_CODE_NOT_SUPPORTED", "no such request")

Told = tuple[str, str, Mapping[str, int], int | None]


class Brokers:
    """Brokers of a cluster that take a batch, or fail as `failing` says."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.failing: dict[str, LakeMQError] = {}
        self.told: list[Told] = []

    def each(self) -> dict[str, Any]:
        return {name: Broker(name, self) for name in self.names}


class Broker:
    """One of them."""

    def __init__(self, name: str, all_of_them: Brokers) -> None:
        self.name = name
        self.all = all_of_them

    def count_batch(
        self, group: str, batch: str, messages: Mapping[str, int], seconds: float, *, lease_epoch: int | None
    ) -> None:
        if failed := self.all.failing.get(self.name):
            raise failed
        self.all.told.append((self.name, batch, messages, lease_epoch))


class Leases:
    """A lease of its own epoch at each broker."""

    def epoch_at(self, name: str) -> int:
        return {"a": 7, "b": 8}[name]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told_batches(brokers: Brokers, clock: Clock) -> ToldBatches:
    lease = cast(GroupLeases, Leases())
    return ToldBatches("g", cast(GroupBrokers, brokers), lease, clock=clock)


def test_one_broker_hears_of_each_batch_with_its_own_epoch() -> None:
    brokers = Brokers("b", "a")
    told = told_batches(brokers, Clock())
    told.tell("q.1", REPORT, "DEAD")
    told.tell("q.2", REPORT, "DEAD")
    messages = {"ACK": 7, "RETRY": 2, "DEAD": 1}
    assert brokers.told == [("a", "q.1", messages, 7), ("a", "q.2", messages, 7)]


def test_an_empty_batch_is_not_told() -> None:
    brokers = Brokers("a")
    told_batches(brokers, Clock()).tell("q.1", BatchReport(0, 0, 0, 1.5, None), "DEAD")
    assert brokers.told == []


def test_behind_a_failure_nobody_is_asked_for_a_while_and_then_the_next_one() -> None:
    brokers, clock = Brokers("a", "b"), Clock()
    told = told_batches(brokers, clock)
    brokers.failing["a"] = AWAY
    told.tell("q.1", REPORT, "DEAD")
    clock.now = SILENT_S - 1
    told.tell("q.2", REPORT, "DEAD")
    assert brokers.told == []
    clock.now = SILENT_S
    told.tell("q.3", REPORT, "DEAD")
    assert [(name, batch, epoch) for name, batch, _, epoch in brokers.told] == [("b", "q.3", 8)]


def test_a_broker_of_an_earlier_version_is_not_asked_again() -> None:
    brokers, clock = Brokers("a"), Clock()
    told = told_batches(brokers, clock)
    brokers.failing["a"] = OLD
    told.tell("q.1", REPORT, "DEAD")
    brokers.failing.clear()
    clock.now = SILENT_S
    told.tell("q.2", REPORT, "DEAD")
    assert brokers.told == []
