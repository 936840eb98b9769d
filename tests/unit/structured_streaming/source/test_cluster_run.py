"""A query over several brokers: one that is away keeps its positions, the others go on, and it catches up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from lakemq.client import Client
from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Bounds, MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.source import batch_plan
from structured_streaming.source.cluster_run import AWAY_S, ClusterRun, options_of
from structured_streaming.source.query_run import QueryRun
from tests.unit.structured_streaming.model_broker import ModelBroker

A0, B0, C0 = (MessageQueue("t0", f"broker-{name}", 0) for name in "abc")


class Broker(ModelBroker):
    """Topic t0 with one queue; ``away`` answers nothing, ``slave_end`` is what a slave has in its place."""

    def __init__(self, name: str, end: int, topic: str = "t0", epoch: int = 5) -> None:
        super().__init__()
        self.broker_name = name
        self.epoch_now = epoch
        self.away = False
        self.slave_end: int | None = None
        self.create(topic, 1)
        self.grow(end, topic)

    def grow(self, end: int, topic: str = "t0") -> None:
        self.held[topic].queues[0].high = end

    def epoch(self) -> int:
        if self.away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {self.broker_name}: no connection")
        return super().epoch()

    def bounds(self, topic: str) -> dict[int, Bounds]:
        found = super().bounds(topic)
        if self.slave_end is None:
            return found
        self.from_slave = True
        return {queue: Bounds(low, self.slave_end) for queue, (low, _) in found.items()}


class Query:
    """A query over brokers a and b (and more that come), with a clock that a test moves."""

    def __init__(self, *brokers: Broker, **given: Any) -> None:
        self.held = {broker.broker_name: broker for broker in brokers}
        self.now = 0.0
        options = {"endpoint": "http://a,http://b", "subscribe": "t0", "startingOffsets": "earliest"}
        self.chosen = parse_read({**options, "retryTimeoutMs": "1", **given}, streaming=True)
        self.run = self.again()

    def again(self) -> ClusterRun:
        """A run of the same query after a restart."""

        class Brokers:
            is_routed = False

            def brokers(brokers) -> dict[str, Broker]:
                return self.held

        def run_of(name: str) -> QueryRun:
            self.held[name].epoch()
            return QueryRun(options_of(self.chosen), self.held[name], must_exist=False)

        return ClusterRun(self.chosen, cast(Client, Brokers()), run_of, clock=lambda: self.now)


def at(offsets: ClusterOffsets) -> dict[str, int]:
    return {queue.broker_name: position for queue, position in offsets.queues.items()}


def test_a_batch_is_made_of_all_brokers_and_its_limit_is_shared() -> None:
    query = Query(Broker("broker-a", 30), Broker("broker-b", 10, epoch=9))
    start = query.run.initial()
    assert at(start) == {"broker-a": 0, "broker-b": 0}
    assert {name: offsets.epoch for name, offsets in start.brokers.items()} == {"broker-a": 5, "broker-b": 9}
    assert at(query.run.latest(start, 20)) == {"broker-a": 15, "broker-b": 5}
    end = query.run.latest(start, None)
    assert at(end) == {"broker-a": 30, "broker-b": 10}
    assert [(piece.queue, piece.start, piece.end) for piece in query.run.slices(start, end)] == [
        (A0, 0, 30),
        (B0, 0, 10),
    ]


def test_a_broker_that_dies_keeps_its_positions_and_catches_up(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    done = query.run.latest(query.run.initial(), None)
    b.away = True
    a.grow(20)
    b.grow(15)
    first = query.run.latest(done, None)
    assert at(first) == {"broker-a": 20, "broker-b": 10}
    assert [piece.queue for piece in query.run.slices(done, first)] == [A0], "b is not asked for"
    a.grow(30)
    second = query.run.latest(first, None)
    assert at(second) == {"broker-a": 30, "broker-b": 10}
    assert len([r for r in caplog.records if "broker-b" in r.message]) == 1, "it is said once"
    b.away = False
    query.now += AWAY_S
    assert at(query.run.latest(second, None)) == {"broker-a": 30, "broker-b": 15}
    b.away = True
    restarted = query.again()
    a.grow(40)
    assert at(restarted.latest(second, None)) == {"broker-a": 40, "broker-b": 10}


def test_where_no_broker_answers_the_query_waits_and_then_fails() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    start = query.run.initial()
    a.away = b.away = True
    with pytest.raises(Unavailable, match="broker broker-a: no connection"):
        query.run.latest(start, None)


def test_a_new_query_begins_only_when_every_broker_says_where() -> None:
    b = Broker("broker-b", 10)
    b.away = True
    with pytest.raises(Unavailable, match="broker broker-b: no connection"):
        Query(Broker("broker-a", 10), b).run.initial()


def test_a_batch_that_was_planned_waits_for_its_broker() -> None:
    b = Broker("broker-b", 10)
    query = Query(Broker("broker-a", 10), b)
    start = query.run.initial()
    end = query.run.latest(start, None)
    b.away = True
    with pytest.raises(Unavailable, match="broker-b"):
        query.again().slices(start, end)
    b.away = False
    assert [piece.queue for piece in query.again().slices(start, end)] == [A0, B0]


def test_a_broker_that_joins_is_read_from_its_oldest_message_and_what_expired_there_is_no_loss() -> None:
    query = Query(Broker("broker-a", 10), Broker("broker-b", 10))
    done = query.run.latest(query.run.initial(), None)
    c = Broker("broker-c", 8)
    c.held["t0"].queues[0].low = 3
    query.held["broker-c"] = c
    end = query.run.latest(done, None)
    assert at(end) == {"broker-a": 10, "broker-b": 10, "broker-c": 8}
    for run in (query.run, query.again()):
        assert [(p.queue, p.start, p.end) for p in run.slices(done, end)] == [(C0, 3, 8)]


def test_a_topic_is_one_that_some_broker_has() -> None:
    query = Query(Broker("broker-a", 10), Broker("broker-b", 10, topic="other"))
    assert at(query.run.initial()) == {"broker-a": 0}
    with pytest.raises(InvalidRequest, match="topic t1 does not exist"):
        Query(Broker("broker-a", 1), Broker("broker-b", 1), subscribe="t1").run.initial()


def test_positions_are_given_by_broker_or_for_all() -> None:
    brokers = Broker("broker-a", 10), Broker("broker-b", 10)
    by_broker = Query(*brokers, startingOffsets='{"t0":{"broker-a/0":3,"broker-b/0":-1}}')
    assert at(by_broker.run.initial()) == {"broker-a": 3, "broker-b": 10}
    for_all = Query(*brokers, startingOffsets='{"t0":{"0":4}}')
    assert at(for_all.run.initial()) == {"broker-a": 4, "broker-b": 4}
    copied = '{"v":2,"brokers":{"broker-a":{"epoch":1,"topics":{"t0":{"id":"","queues":{"0":6}}}},'
    copied += '"broker-b":{"epoch":1,"topics":{"t0":{"id":"","queues":{"0":7}}}}}}'
    assert at(Query(*brokers, startingOffsets=copied).run.initial()) == {"broker-a": 6, "broker-b": 7}
    with pytest.raises(InvalidRequest, match="missing t0/0"):
        Query(*brokers, startingOffsets='{"t0":{"broker-a/0":3}}').run.initial()


def test_what_a_slave_has_not_got_yet_is_not_lost() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    done = query.run.latest(query.run.initial(), None)
    b.slave_end = 7
    a.grow(12)
    for run in (query.run, query.again()):
        assert at(run.latest(done, None)) == {"broker-a": 12, "broker-b": 10}
    b.slave_end = 11
    assert at(query.run.latest(done, None)) == {"broker-a": 12, "broker-b": 11}


def test_an_available_now_run_leaves_out_a_broker_that_is_away() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    start = query.run.initial()
    b.away = True
    query.run.freeze()
    b.away = False
    a.grow(20)
    query.now += AWAY_S
    assert at(query.run.latest(start, None)) == {"broker-a": 10, "broker-b": 0}


def test_a_checkpoint_of_one_broker_goes_on_beside_another() -> None:
    a = Broker("broker-a", 10)
    old = Offsets(5, {"t0": a.topic_id("t0") or ""}, {A0: 4}).to_json()
    query = Query(a, Broker("broker-b", 10))
    end = query.run.latest(ClusterOffsets.from_json(old), None)
    assert at(end) == {"broker-a": 10, "broker-b": 10}
    alone = Query(a)
    assert alone.run.latest(ClusterOffsets.from_json(old), None).to_json()["v"] == 1


def test_the_plan_names_where_each_broker_begins(tmp_path: Path) -> None:
    query = Query(Broker("broker-a", 10), Broker("broker-b", 10), planFile=str(tmp_path / "plan"))
    start = query.run.initial()
    end = query.run.latest(start, None)
    query.run.slices(start, end)
    assert batch_plan.take(tmp_path / "plan") == (start, end)
    query.run.slices(ClusterOffsets({"broker-a": start.brokers["broker-a"]}), end)
    assert batch_plan.take(tmp_path / "plan") == (start, end), "b joined in this batch"
