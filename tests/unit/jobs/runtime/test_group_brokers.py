"""What the brokers of a group hold of its subscription, named or matched."""

from __future__ import annotations

import pytest

from jobs.runtime.group_brokers import GroupBrokers
from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue
from structured_streaming.subscription import Subscription
from tests.unit.jobs.model_cluster import ModelCluster

MATCHED = Subscription(pattern="t.*")


def queues(*topics: str, brokers: tuple[str, ...] = ("broker-a", "broker-b")) -> dict[str, set[MessageQueue]]:
    return {topic: {MessageQueue(topic, name, 0) for name in brokers} for topic in topics}


def held(cluster: ModelCluster, subscription: Subscription) -> dict[str, set[MessageQueue]]:
    found = GroupBrokers(cluster.client()).held(subscription)
    return {topic: set(of_topic) for topic, of_topic in found.items()}


def test_a_pattern_takes_what_every_broker_lists() -> None:
    cluster = ModelCluster("broker-a", "broker-b", topics=("t", "tt", "other"))
    assert held(cluster, MATCHED) == queues("t", "tt")
    assert held(cluster, Subscription(pattern="x.*")) == {}


@pytest.mark.parametrize("several", [False, True])
def test_a_topic_that_goes_between_the_list_and_the_question_is_not_there(several: bool) -> None:
    cluster = ModelCluster("broker-a", topics=("t",), several=several)
    cluster.gone = ("t-gone",)
    assert held(cluster, MATCHED) == queues("t", brokers=("broker-a",))


def test_a_topic_that_is_named_has_to_be_somewhere() -> None:
    cluster = ModelCluster("broker-a", "broker-b", topics=("t",))
    with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
        held(cluster, Subscription(frozenset({"t", "u"})))
