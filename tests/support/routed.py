"""What tests ask of two brokers behind name servers."""

from __future__ import annotations

from lakemq.client import (
    Client,
    InvalidRequest,
    Unavailable,
)
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster


def made(cluster: BrokersOfCluster, client: Client, topic: str) -> str:
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    return topic


def bodies(broker: Client, topic: str) -> list[str]:
    return [m.body.decode() for queue in range(2) for m in broker.pull(topic, queue, 0, max=1000).messages]


def confirmed(broker: BrokerProcess, topic: str) -> int:
    with broker.client() as client:
        try:
            return sum(queue.confirmed_offset for queue in client.queues(topic))
        except InvalidRequest:
            return 0


def sends(client: Client, topic: str) -> bool:
    try:
        return client.send(topic, "three").status == "SEND_OK"
    except Unavailable:
        return False
