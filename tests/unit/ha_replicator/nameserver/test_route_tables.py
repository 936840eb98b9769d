"""The name server's tables: who lives, who holds what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha_replicator.nameserver import BrokerRegistration, QueueData, RouteTables, route_tables
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf

FOUR = QueueData(4, 4, 6)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def broker(
    name: str = "broker-a",
    broker_id: int = 0,
    topics: dict[str, QueueData] | None = None,
    version: str = "1",
    replication: str | None = None,
) -> BrokerRegistration:
    address = f"http://{name}:{8090 + broker_id}"
    return BrokerRegistration("c", name, broker_id, address, version, topics, replication)


def tables() -> tuple[RouteTables, Clock]:
    clock = Clock()
    return RouteTables(clock=clock), clock


def test_a_route_names_the_brokers_that_hold_the_topic() -> None:
    names, _ = tables()
    names.register(broker("broker-a", topics={"t": FOUR, "u": FOUR}))
    names.register(broker("broker-b", topics={"t": QueueData(8, 8, 6)}))
    route = names.route("t")
    assert route is not None
    assert route.queues == {"broker-a": FOUR, "broker-b": QueueData(8, 8, 6)}
    assert [b.broker_name for b in route.brokers] == ["broker-a", "broker-b"]
    only = names.route("u")
    assert only is not None
    assert [b.addresses for b in only.brokers] == [{0: "http://broker-a:8090"}]
    assert names.route("v") is None


def test_no_route_has_a_slave_whose_log_parted_from_its_masters() -> None:
    names, _ = tables()
    names.register(broker(topics={"t": FOUR}))
    for parted in (False, True, False):
        names.register(replace(broker(broker_id=1), log_parted=parted))
        route = names.route("t")
        assert route is not None
        assert [sorted(b.addresses) for b in route.brokers] == [[0] if parted else [0, 1]]
        assert [sorted(b.addresses) for b in names.brokers()] == [[0, 1]], "it is there, and is shown"


def test_a_changed_table_replaces_the_old_one() -> None:
    names, _ = tables()
    names.register(broker(topics={"t": FOUR}))
    names.register(broker(topics={"u": FOUR}, version="2"))
    assert names.route("t") is None
    assert names.route("u") is not None


def test_a_heartbeat_keeps_the_table_and_an_unknown_version_asks_for_it() -> None:
    names, _ = tables()
    names.register(broker(topics={"t": FOUR}))
    assert not names.register(broker()).topics_wanted
    assert names.route("t") is not None
    assert names.register(broker(version="2")).topics_wanted


def test_a_broker_that_is_silent_too_long_is_gone_from_every_table() -> None:
    names, clock = tables()
    names.register(broker("broker-a", topics={"t": FOUR}))
    clock.now = 60
    names.register(broker("broker-b", topics={"t": FOUR}))
    clock.now = 120
    assert names.expire() == []
    clock.now = 121
    assert names.expire() == [("broker-a", 0)]
    route = names.route("t")
    assert route is not None
    assert list(route.queues) == ["broker-b"]
    assert [b.broker_name for b in names.brokers()] == ["broker-b"]


def test_a_route_names_no_silent_broker_though_nobody_looked_for_them() -> None:
    names, clock = tables()
    names.register(broker(topics={"t": FOUR}))
    clock.now = 121
    assert names.route("t") is None


def test_a_broker_that_comes_seldom_is_late_after_three_of_its_heartbeats() -> None:
    names, clock = tables()
    names.register(replace(broker("broker-a"), heartbeat_s=50.0))
    names.register(replace(broker("broker-b"), heartbeat_s=30.0))
    clock.now = 150
    assert names.expire() == [("broker-b", 0)]
    clock.now = 151
    assert names.expire() == [("broker-a", 0)]


def test_a_broker_that_comes_back_after_its_end_is_asked_for_its_table() -> None:
    names, _ = tables()
    names.register(broker(topics={"t": FOUR}))
    names.unregister("broker-a", 0)
    assert names.register(broker()).topics_wanted


def test_the_brokers_of_a_name_are_of_the_masters_epoch_if_there_is_one() -> None:
    names, _ = tables()
    names.register(replace(broker(broker_id=0), epoch=7))
    names.register(replace(broker(broker_id=1), epoch=6))
    names.register(replace(broker("broker-b", broker_id=1), epoch=5))
    assert [(b.cluster, b.broker_name, b.epoch) for b in names.brokers()] == [
        ("c", "broker-a", 7),
        ("c", "broker-b", None),
    ]


@pytest.mark.parametrize(
    ("known", "said", "is_gone"),
    [("own", "", True), ("own", "own", True), ("own", "another", False), ("", "own", True)],
)
def test_only_another_store_cannot_take_a_broker_out(known: str, said: str, is_gone: bool) -> None:
    names, _ = tables()
    names.register(replace(broker(), store_id=known))
    gone = names.unregister("broker-a", 0, said) if said else names.unregister("broker-a", 0)
    assert gone is is_gone
    assert (names.brokers() == []) is is_gone


def conflict(names: RouteTables, registration: BrokerRegistration) -> InvalidRequest:
    before = names.brokers()
    with pytest.raises(InvalidRequest) as refused:
        names.register(registration)
    assert names.brokers() == before, "the place is the other's as before"
    assert refused.value.code == "BROKER_CONFLICT"
    return refused.value


def test_of_two_masters_the_one_of_the_higher_epoch_has_the_place_and_the_other_hears_of_it() -> None:
    names, clock = tables()
    names.register(replace(broker(), epoch=3, store_id="first"))
    names.register(replace(broker(), epoch=4, store_id="second"))
    assert conflict(names, replace(broker(), epoch=3, store_id="first")).context == {"epoch": 4}
    clock.now = 121
    names.register(replace(broker(), epoch=3, store_id="first"))
    assert [b.epoch for b in names.brokers()] == [3], "the other is gone: it is silent"


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_place_is_that_of_the_store_that_has_it(broker_id: int) -> None:
    names, _ = tables()
    names.register(replace(broker(broker_id=broker_id), store_id="first"))
    refused = conflict(names, replace(broker(broker_id=broker_id), store_id="second", address="http://x:1"))
    assert f"broker-a with id {broker_id} is another broker" in refused.detail
    assert refused.context == {}, "no epoch decided"
    names.register(broker(broker_id=broker_id))


def test_the_broker_the_tables_sit_in_never_expires() -> None:
    names, clock = tables()
    names.register(broker(topics={"t": FOUR}), pinned=True)
    clock.now = 1_000_000
    assert names.route("t") is not None
    assert names.is_pinned("broker-a", 0)


def test_a_slave_joins_its_masters_name_and_learns_where_it_is() -> None:
    names, _ = tables()
    assert names.register(broker(broker_id=1)).master_address is None
    names.register(broker(topics={"t": FOUR}, replication="broker-a:10912"))
    answer = names.register(broker(broker_id=1))
    assert answer.master_address == "http://broker-a:8090"
    assert answer.master_replication_address == "broker-a:10912"
    route = names.route("t")
    assert route is not None
    assert route.brokers[0].addresses == {0: "http://broker-a:8090", 1: "http://broker-a:8091"}


def test_topics_stay_readable_while_a_slave_lives_and_go_with_the_last_broker() -> None:
    names, _ = tables()
    names.register(broker(topics={"t": FOUR}))
    names.register(broker(broker_id=1))
    assert names.unregister("broker-a", 0)
    route = names.route("t")
    assert route is not None
    assert route.brokers[0].addresses == {1: "http://broker-a:8091"}
    assert names.unregister("broker-a", 1)
    assert names.route("t") is None
    assert not names.unregister("broker-a", 1)


def test_one_topic_comes_and_goes_between_registrations() -> None:
    names, _ = tables()
    names.put_topic("broker-a", "t", FOUR)
    assert names.route("t") is None, "an unknown broker holds nothing"
    names.register(broker(topics={}))
    names.put_topic("broker-a", "t", FOUR)
    assert names.route("t") is not None
    names.put_topic("broker-a", "t", None)
    names.put_topic("broker-a", "t", None)
    assert names.route("t") is None


def test_a_slave_alone_that_goes_leaves_nothing() -> None:
    names, _ = tables()
    names.register(broker(broker_id=1))
    assert names.unregister("broker-a", 1)
    assert names.brokers() == []


def conf(version: int, *names: str) -> OrderConf:
    return OrderConf.of(version, dict.fromkeys(names, 4))


def of_list(order_conf: OrderConf) -> dict[str, QueueData]:
    return {"t": QueueData(4, 4, 6, order_conf)}


def listed(names: RouteTables) -> OrderConf | None:
    route = names.route("t")
    return None if route is None else route.order_conf


def test_the_list_of_an_ordered_topic_outlives_the_brokers_that_told_it() -> None:
    names = RouteTables()
    both = conf(2, "broker-a", "broker-b")
    names.register(broker("broker-a", topics=of_list(both)))
    names.register(broker("broker-b", topics=of_list(conf(1, "broker-b"))))
    assert listed(names) == both, "the higher version counts"
    names.unregister("broker-a", 0)
    assert listed(names) == both
    names.unregister("broker-b", 0)
    route = names.route("t")
    assert route is not None
    assert (route.queues, route.brokers, route.order_conf) == ({}, [], both)


def test_a_list_goes_when_all_that_it_names_are_here_and_none_has_it() -> None:
    names = RouteTables()
    both = conf(2, "broker-a", "broker-b")
    names.register(broker("broker-a", topics=of_list(both)))
    names.put_topic("broker-a", "t", None)
    assert listed(names) == both, "broker-b may have it"
    names.register(broker("broker-b", topics={"u": FOUR}))
    assert names.route("t") is None
    names.unregister("broker-b", 0)
    assert names.route("t") is None, "it is gone for good"


def test_a_topic_that_was_made_again_without_a_list_is_not_ordered() -> None:
    names = RouteTables()
    names.register(broker("broker-a", topics=of_list(conf(2, "broker-a"))))
    names.put_topic("broker-a", "t", FOUR)
    assert listed(names) is None


def test_lists_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_tables, "MOST_ORDER_CONFS", 2)
    names = RouteTables()
    names.register(broker("broker-a", topics={}))
    for topic in ("t", "u", "v"):
        names.put_topic("broker-a", topic, QueueData(4, 4, 6, conf(1, "broker-a", "broker-b")))
    assert all(names.route(topic).order_conf is not None for topic in ("t", "u", "v"))  # type: ignore[union-attr]
    names.unregister("broker-a", 0)
    assert [names.route(topic) is not None for topic in ("t", "u", "v")] == [False, True, True]
