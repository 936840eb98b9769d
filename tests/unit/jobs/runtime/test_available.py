"""Whether a run that ends by itself has handled what was there, on every broker."""

from __future__ import annotations

import pytest

from jobs.runtime.available import AvailableMessages
from jobs.runtime.group_brokers import GroupBrokers
from store_native.errors import Unavailable
from structured_streaming.offsets import MessageQueue
from structured_streaming.subscription import Subscription
from tests.unit.jobs.model_cluster import ModelCluster


def there(cluster: ModelCluster) -> AvailableMessages:
    messages = AvailableMessages(GroupBrokers(cluster.client()), Subscription(frozenset({"t"})))
    messages.look()
    return messages


def reached(**offsets: int) -> dict[MessageQueue, int]:
    return {MessageQueue("t", f"broker-{name}", 0): offset for name, offset in offsets.items()}


def test_what_came_later_is_not_asked_for() -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    available = there(cluster)
    cluster.ends["broker-a"] = 99
    assert available.left_out(reached(a=10, b=12)) == []


def test_a_broker_whose_messages_were_not_read_is_named() -> None:
    assert there(ModelCluster("broker-a", "broker-b")).left_out(reached(a=10, b=9)) == ["broker-b"]
    assert there(ModelCluster("broker-a", "broker-b")).left_out(reached(a=10)) == ["broker-b"]


def test_an_empty_queue_that_was_never_reached_is_handled() -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    cluster.ends["broker-b"] = 0
    assert there(cluster).left_out(reached(a=10)) == []


def test_a_broker_that_was_silent_at_the_start_is_named_although_it_is_back() -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    cluster.away, cluster.never = {"broker-b"}, ["http://c"]
    available = there(cluster)
    cluster.away = set()
    assert available.left_out(reached(a=10, b=10)) == ["broker-b", "http://c"]


def test_the_only_broker_is_not_done_without() -> None:
    cluster = ModelCluster("broker-a", several=False)
    cluster.away = {"broker-a"}
    with pytest.raises(Unavailable):
        there(cluster)


def test_a_queue_that_the_job_reads_no_further_is_not_left_out_but_a_silent_broker_is() -> None:
    paused = [MessageQueue("t", "broker-a", 0)]
    assert there(ModelCluster("broker-a", "broker-b")).left_out(reached(a=3, b=10), paused) == []
    assert there(ModelCluster("broker-a", "broker-b")).left_out(reached(a=3, b=9), paused) == ["broker-b"]
    cluster = ModelCluster("broker-a", "broker-b")
    cluster.away = {"broker-b"}
    assert there(cluster).left_out(reached(a=3), paused) == ["broker-b"]


def test_where_the_queues_ended_is_known_of_those_that_answered() -> None:
    cluster = ModelCluster("broker-a", "broker-b", "broker-c")
    cluster.away = {"broker-b"}
    available = there(cluster)
    cluster.ends["broker-a"], cluster.away = 99, set()
    assert available.ends == reached(a=10, c=10)
