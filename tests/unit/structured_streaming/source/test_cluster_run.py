"""A query over several brokers: one that is away keeps its positions, the others go on, and it catches up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Bounds, MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.source import batch_plan
from structured_streaming.source.cluster_run import AWAY_S, ClusterRun, options_of
from structured_streaming.source.query_run import QueryRun
from tests.support.waiting import wait_until
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
        self.slave_answers += 1
        return {queue: Bounds(low, self.slave_end) for queue, (low, _) in found.items()}


class Lease:
    """A query's lease at one broker, where another query may have the group already."""

    def __init__(self, name: str, query: Query) -> None:
        self.name = name
        self.query = query
        self.epoch = 0

    def acquire(self) -> None:
        self.query.asked_for_lease.append(self.name)
        if self.query.held[self.name].away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {self.name}: no connection")
        if self.name in self.query.refused_at:
            raise InvalidRequest("LEASE_CONFLICT", "another query has it")
        self.epoch = 1

    def check(self) -> int:
        return self.epoch


class Query:
    """A query over brokers a and b (and more that come), with a clock that a test moves."""

    answer_s = 60.0

    def __init__(self, *brokers: Broker, refused_at: Sequence[str] = (), **given: Any) -> None:
        self.asked_for_lease: list[str] = []
        self.refused_at = refused_at
        self.held = {broker.broker_name: broker for broker in brokers}
        self.now = 0.0
        self.never_answered: list[str] = []
        self.committed: dict[str, dict[tuple[str, int], int]] = {}
        options = {"endpoint": "http://a,http://b", "subscribe": "t0", "startingOffsets": "earliest"}
        self.chosen = parse_read({**options, "retryTimeoutMs": "1", **given}, streaming=True)
        self.run = self.again()

    def again(self) -> ClusterRun:
        """A run of the same query after a restart."""

        class Brokers:
            def brokers(brokers) -> dict[str, Broker]:
                return self.held

            def never_answered(brokers) -> list[str]:
                return self.never_answered

        def run_of(name: str) -> QueryRun:
            self.held[name].epoch()
            join_at = None if self.chosen.join_at_group is None else lambda: self.committed.get(name, {})
            lease = None if self.chosen.group is None else cast(GroupLease, Lease(name, self))
            return QueryRun(
                options_of(self.chosen), self.held[name], must_exist=False, join_at=join_at, lease=lease
            )

        return ClusterRun(
            self.chosen, cast(Client, Brokers()), run_of, clock=lambda: self.now, answer_s=self.answer_s
        )


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


def test_a_new_query_does_not_begin_while_an_address_never_answered() -> None:
    query = Query(Broker("broker-a", 10))
    query.never_answered = ["http://b"]
    with pytest.raises(Unavailable, match="http://b does not answer: a new query begins when every broker"):
        query.run.initial()
    query.never_answered = []
    assert at(query.run.initial()) == {"broker-a": 0}


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


def test_a_planned_batch_without_a_message_of_a_broker_does_not_wait_for_it() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 0)
    query = Query(a)
    start = query.run.initial()
    query.held["broker-b"] = b
    joined = query.run.latest(start, None)
    assert at(joined) == {"broker-a": 10, "broker-b": 0}
    b.away = True
    assert [piece.queue for piece in query.again().slices(start, joined)] == [A0], "it joined with nothing"
    before = ClusterOffsets({**joined.brokers, "broker-b": Offsets(5)})
    assert query.again().slices(before, joined) == [], "its topic was new there"
    of_another_life = ClusterOffsets({**joined.brokers, "broker-b": Offsets(4, {"t0": "x"}, {B0: 0})})
    with pytest.raises(Unavailable):
        query.again().slices(of_another_life, joined)
    with pytest.raises(Unavailable):
        query.again().slices(joined, before)


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


def group(*brokers: Broker, start: str) -> Query:
    """A query as a group's job makes it."""
    return Query(*brokers, startingOffsets=start, brokersJoin="true", joinAtGroup="g")


def test_a_groups_broker_that_comes_later_begins_where_the_start_names_it() -> None:
    query = group(Broker("broker-a", 10), start='{"t0":{"broker-a/0":3,"broker-b/0":4}}')
    query.never_answered = ["http://b"]
    start = query.run.initial()
    assert at(start) == {"broker-a": 3}, "that b never answered does not matter: the start is decided"
    done = query.run.latest(start, None)
    query.held["broker-b"] = Broker("broker-b", 10)
    end = query.run.latest(done, None)
    assert at(end) == {"broker-a": 10, "broker-b": 10}
    for run in (query.run, query.again()):
        assert [(p.queue, p.start, p.end) for p in run.slices(done, end)] == [(B0, 4, 10)]


def test_a_groups_broker_that_the_start_does_not_name_begins_at_the_groups_offsets_there() -> None:
    a, b, c = (Broker(f"broker-{name}", 10) for name in "abc")
    query = group(a, b, c, start='{"t0":{"broker-a/0":3}}')
    query.committed = {"broker-b": {("t0", 0): 6}}
    start = query.run.initial()
    assert at(start) == {"broker-a": 3}
    end = query.run.latest(start, None)
    assert at(end) == {"broker-a": 10, "broker-b": 10, "broker-c": 10}
    assert [(p.queue, p.start) for p in query.run.slices(start, end)] == [(A0, 3), (B0, 6), (C0, 0)]


def test_an_open_batch_of_a_broker_that_joined_is_read_as_planned_by_a_query_of_fewer_topics(
    tmp_path: Path,
) -> None:
    start = '{"t0":{"broker-a/0":0,"broker-b/0":15},"t1":{"broker-a/0":0,"broker-b/0":12}}'
    plan_file = tmp_path / "plan.json"
    given = {"startingOffsets": start, "brokersJoin": "true", "planFile": str(plan_file)}
    a, b = Broker("broker-a", 3), Broker("broker-b", 20)
    for broker in (a, b):
        broker.create("t1", 1)
        broker.grow(20, "t1")
    query = Query(a, subscribe="t0,t1", **given)
    first = query.run.latest(query.run.initial(), None)
    query.held["broker-b"] = b
    second = query.run.latest(first, None)
    wanted = [("t0", 15, 20), ("t1", 12, 20)]
    assert [(p.queue.topic, p.start, p.end) for p in query.run.slices(first, second)] == wanted
    fewer = Query(a, b, subscribe="t0", **given)
    assert [(p.queue.topic, p.start, p.end) for p in fewer.run.slices(first, second)] == wanted
    plan = batch_plan.take(plan_file)
    assert plan is not None
    begins, _ = plan
    assert {queue.topic: at for queue, at in begins.queues.items() if queue.broker_name == "broker-b"} == {
        "t0": 15,
        "t1": 12,
    }


def test_a_group_whose_start_is_decided_begins_without_a_broker_that_is_away() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = group(a, b, start='{"t0":{"broker-a/0":3,"broker-b/0":4}}')
    b.away = True
    start = query.run.initial()
    assert at(query.run.latest(start, None)) == {"broker-a": 10}
    b.away = False
    query.now += AWAY_S
    assert [p.start for p in query.run.slices(start, query.run.latest(start, None))] == [3, 4]


def test_a_spark_that_gives_no_start_does_not_forget_a_broker_that_is_away() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    query.never_answered = ["http://b"]
    with pytest.raises(Unavailable, match="http://b does not answer: below Spark"):
        query.run.latest_unasked()
    query.never_answered = []
    b.away = True
    with pytest.raises(Unavailable, match="broker-b: no connection"):
        query.run.latest_unasked()
    b.away = False
    done = query.run.latest_unasked()
    # A name server has forgotten b when the query is started again.
    restarted, forgotten = query.again(), query.held.pop("broker-b")
    a.grow(20)
    end = restarted.latest_unasked()
    assert at(end) == {"broker-a": 20}
    assert [(p.queue, p.start) for p in restarted.slices(done, end)] == [(A0, 10)]
    query.held["broker-b"] = forgotten
    forgotten.grow(15)
    following = restarted.latest_unasked()
    assert at(following) == {"broker-a": 20, "broker-b": 15}
    assert [(p.queue, p.start, p.end) for p in restarted.slices(end, following)] == [(B0, 10, 15)]


def test_the_plan_of_a_batch_without_a_broker_does_not_say_that_its_queues_are_gone(tmp_path: Path) -> None:
    query = Query(Broker("broker-a", 10), Broker("broker-b", 10), planFile=str(tmp_path / "plan"))
    start = query.run.initial()
    end = ClusterOffsets({"broker-a": query.run.latest(start, None).brokers["broker-a"]})
    query.run.slices(start, end)
    plan = batch_plan.take(tmp_path / "plan")
    assert plan is not None
    assert set(plan[0].brokers) == {"broker-a"}


def test_a_slave_is_not_taken_for_a_master_where_both_answered_one_look() -> None:
    a = Broker("broker-a", 10)
    a.create("t1", 1)
    a.grow(10, "t1")
    query = Query(a, subscribe="t0,t1")
    done = query.run.latest(query.run.initial(), None)

    class MasterIsBack(Broker):
        """The slave answers what is asked first, the master the rest."""

        def epoch(self) -> int:
            self.slave_answers += 1
            return 4

        def topic_id(self, topic: str) -> str | None:
            return a.topic_id(topic)

        def bounds(self, topic: str) -> dict[int, Bounds]:
            if topic == "t1":
                return a.bounds("t1")
            self.slave_answers += 1
            return {0: Bounds(0, 7)}

    query.held["broker-a"] = MasterIsBack("broker-a", 10)
    for run in (query.again(), query.again()):
        a.grow(12, "t1")
        end = run.latest(done, None)
        assert {queue.topic: position for queue, position in end.queues.items()} == {"t0": 10, "t1": 12}
        assert [(p.queue.topic, p.start, p.end) for p in run.slices(done, end)] == [("t1", 10, 12)]


def test_a_queue_that_the_slave_does_not_have_yet_is_waited_for() -> None:
    a = Broker("broker-a", 10)
    query = Query(a)
    start = query.run.initial()
    done = query.run.latest(start, None)

    class Slave(Broker):
        def bounds(self, topic: str) -> dict[int, Bounds]:
            self.slave_answers += 1
            return {}

    query.held["broker-a"] = Slave("broker-a", 0)
    assert query.again().latest(done, None) == done
    assert [(p.queue, p.start, p.end) for p in query.again().slices(start, done)] == [(A0, 0, 10)]


def test_a_spark_that_gives_no_start_waits_for_the_master() -> None:
    a = Broker("broker-a", 10)
    a.slave_end = 7
    with pytest.raises(Unavailable, match="its slave may be behind the checkpoint"):
        Query(a).run.latest_unasked()


def test_a_broker_that_hangs_does_not_hold_up_the_others() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b)
    query.answer_s = 0.3
    run = query.again()
    done = run.latest(run.initial(), None)
    answers = threading.Event()
    hangs = 0

    class Hanging(Broker):
        def epoch(self) -> int:
            nonlocal hangs
            hangs += 1
            answers.wait()
            return super().epoch()

    b.__class__ = Hanging
    b.grow(20)
    a.grow(20)
    first = run.latest(done, None)
    assert at(first) == {"broker-a": 20, "broker-b": 10}
    for _ in range(3):
        query.now += AWAY_S
        assert run.latest(first, None) == first
    assert hangs == 1, "who has not answered yet is not asked again"
    with pytest.raises(Unavailable, match="broker broker-b did not answer within"):
        run.slices(done, ClusterOffsets({**first.brokers, "broker-b": Offsets(9)}))
    answers.set()

    def is_back() -> bool:
        query.now += AWAY_S
        return at(run.latest(first, None)) == {"broker-a": 20, "broker-b": 20}

    wait_until(is_back)


def test_a_slave_that_knows_a_topics_later_life_is_believed() -> None:
    a = Broker("broker-a", 10)
    query = Query(a, failOnDataLoss="false")
    done = query.run.latest(query.run.initial(), None)
    again = query.held["broker-a"] = Broker("broker-a", 0)
    again.create("t0", 1)
    again.slave_end = 3
    assert at(query.again().latest(done, None)) == {"broker-a": 3}


def test_of_queries_that_begin_at_once_one_goes_on_since_they_meet_at_the_first_broker() -> None:
    brokers = [Broker(f"broker-{name}", 10) for name in "abc"]
    start = Query(*brokers).run.initial()
    loser = Query(*brokers, refused_at=["broker-a"], group="g")
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        loser.run.latest(start, None)
    assert loser.asked_for_lease == ["broker-a"], "it has taken nothing that another one needs"
    winner = Query(*brokers, group="g")
    assert at(winner.run.latest(start, None)) == {"broker-a": 10, "broker-b": 10, "broker-c": 10}
    assert winner.asked_for_lease[0] == "broker-a"
    assert sorted(winner.asked_for_lease) == ["broker-a", "broker-b", "broker-c"]


def test_a_first_broker_that_is_away_hands_the_decision_to_the_next() -> None:
    brokers = [Broker(f"broker-{name}", 10) for name in "abc"]
    start = Query(*brokers).run.initial()
    brokers[0].away = True
    loser = Query(*brokers, refused_at=["broker-b"], group="g")
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        loser.run.latest(start, None)
    assert "broker-c" not in loser.asked_for_lease
    winner = Query(*brokers, group="g")
    assert at(winner.run.latest(start, None)) == {"broker-a": 0, "broker-b": 10, "broker-c": 10}
