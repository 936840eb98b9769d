"""Ordered topics under test: making one, and what a send of a sharding key came to."""

from __future__ import annotations

from lakemq.client import Client, Unavailable
from tests.support.name_servers import BrokersOfCluster
from tests.support.waiting import wait_until

KEYS = [f"customer-{number}" for number in range(12)]


def ordered(cluster: BrokersOfCluster, client: Client, topic: str) -> str:
    """Makes a topic that is ordered over brokers a and b, with two queues each."""
    client.order_topic(topic, queues=2)
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    return topic


def forgotten(cluster: BrokersOfCluster, name: str) -> None:
    """Waits until every name server has dropped a broker that was killed."""
    for server in cluster.name_servers:
        wait_until(lambda server=server: name not in server.addresses(), timeout_s=30)  # type: ignore[misc]


def sent(client: Client, topic: str, key: str) -> str | None:
    """The broker that took a message of the key; None: its own is away."""
    try:
        return client.send(topic, "x", sharding_key=key).broker_name
    except Unavailable as error:
        said = str(error)
    for what in ("broker broker-b", f"topic {topic} is ordered", "they go to no other"):
        assert what in said
    return None
