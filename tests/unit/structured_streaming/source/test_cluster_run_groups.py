"""A group over several brokers: where it begins on each, and which of two queries has it."""

from __future__ import annotations

import pytest

from store_native.errors import InvalidRequest
from structured_streaming.source.cluster_run import AWAY_S
from tests.unit.structured_streaming.cluster_query import A0, B0, C0, Broker, Query, at


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


def test_a_group_whose_start_is_decided_begins_without_a_broker_that_is_away() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = group(a, b, start='{"t0":{"broker-a/0":3,"broker-b/0":4}}')
    b.away = True
    start = query.run.initial()
    assert at(query.run.latest(start, None)) == {"broker-a": 10}
    b.away = False
    query.now += AWAY_S
    assert [p.start for p in query.run.slices(start, query.run.latest(start, None))] == [3, 4]


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
