"""A query over several brokers: one that is away keeps its positions, the others go on, and it catches up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Offsets
from structured_streaming.source import batch_plan
from structured_streaming.source.cluster_run import AWAY_S
from tests.support.waiting import wait_until
from tests.unit.structured_streaming.cluster_query import A0, B0, C0, Broker, Query, at


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
    assert batch_plan.take(tmp_path / "plan") == batch_plan.Plan(start, end)
    query.run.slices(ClusterOffsets({"broker-a": start.brokers["broker-a"]}), end)
    assert batch_plan.take(tmp_path / "plan") == batch_plan.Plan(start, end), "b joined in this batch"


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
    begins = plan.begin
    assert {queue.topic: at for queue, at in begins.queues.items() if queue.broker_name == "broker-b"} == {
        "t0": 15,
        "t1": 12,
    }


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
