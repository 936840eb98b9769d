"""A query over several brokers, one of which a slave answers for: what it has not got yet is no loss."""

from __future__ import annotations

import pytest

from store_native.errors import Unavailable
from structured_streaming.offsets import Bounds
from tests.unit.structured_streaming.cluster_query import A0, Broker, Query, at


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


def test_a_slave_that_knows_a_topics_later_life_is_believed() -> None:
    a = Broker("broker-a", 10)
    query = Query(a, failOnDataLoss="false")
    done = query.run.latest(query.run.initial(), None)
    again = query.held["broker-a"] = Broker("broker-a", 0)
    again.create("t0", 1)
    again.slave_end = 3
    assert at(query.again().latest(done, None)) == {"broker-a": 3}
