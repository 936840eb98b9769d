"""Where sends go of those who have several brokers, against real name servers and brokers.

Contract: sends go round; what has a sharding key, an idempotency key or a selected queue goes where that is.
"""

from __future__ import annotations

import pytest

from lakemq import Producer
from lakemq.client import (
    Client,
    InvalidRequest,
    Message,
    MessageQueue,
    SendResult,
    Unavailable,
)
from lakemq.lanes import QueueSelector
from tests.support.name_servers import BrokersOfCluster
from tests.support.routed import bodies, made
from tests.support.waiting import wait_until


def test_sends_go_round_and_what_belongs_to_one_broker_asks_for_its_name(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = made(cluster, client, "round")
    sent = [client.send(topic, f"{number}", message_id=None) for number in range(8)]
    assert {result.broker_name for result in sent} == {"broker-a", "broker-b"}
    brokers = client.brokers(topic)
    assert sorted(body for broker in brokers.values() for body in bodies(broker, topic)) == list("01234567")
    assert sum(queue.max_offset for queue in client.queues(topic, broker_name="broker-a")) == 4
    assert [m.body for m in client.query(topic, sent[3].message_id)] == [b"3"]
    assert client.message(sent[5].message_id).body == b"5"
    with pytest.raises(InvalidRequest, match="several brokers, broker-a, broker-b: name one"):
        client.queues(topic)
    batch = client.send_many(topic, [Message("x", sharding_key="17"), Message("y", sharding_key="17")])
    assert batch.count == 2
    where = {client.send(topic, "z", sharding_key="17").broker_name for _ in range(4)}
    assert len(where) == 1, "a sharding key has one broker"
    with pytest.raises(InvalidRequest, match="of several brokers"):
        client.send_many(topic, [Message("x", sharding_key=str(number)) for number in range(20)])


def test_a_key_that_is_sent_again_goes_to_the_broker_that_has_it(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = made(cluster, client, "keyed")
    keys = [f"order-{number}" for number in range(12)]
    first = {key: client.send(topic, key, idempotency_key=key) for key in keys}
    assert {result.broker_name for result in first.values()} == {"broker-a", "broker-b"}
    with Client(cluster.endpoint, timeout_s=10) as another, Producer(another, topic) as producer:
        for key, result in first.items():
            again = producer.send(key, idempotency_key=key)
            assert (again.duplicate, again.offset_message_id) == (True, result.offset_message_id)
            assert client.send_many(topic, [Message(key)], idempotency_key=f"{key}-many").count == 1
            assert another.send_many(topic, [Message(key)], idempotency_key=f"{key}-many").duplicate
        made_by_itself = [producer.send("x").broker_name for _ in range(8)]
    assert sorted(made_by_itself) == ["broker-a"] * 4 + ["broker-b"] * 4, "keys of its own alternate"


def test_a_key_whose_broker_is_away_is_sent_elsewhere(cluster: BrokersOfCluster, client: Client) -> None:
    topic = made(cluster, client, "keyed-away")
    keys = [f"away-{number}" for number in range(8)]
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        for _ in range(2):
            sent = [client.send(topic, key, idempotency_key=key) for key in keys]
            assert {result.broker_name for result in sent} == {"broker-a"}
        assert all(result.duplicate for result in sent)
    finally:
        b.start()
    wait_until(lambda: "broker-b" in cluster.name_servers[0].addresses())


def test_a_sharding_key_stays_at_its_broker_while_a_name_server_does_not_know_it(
    cluster: BrokersOfCluster, client: Client, requests: list[str]
) -> None:
    topic = made(cluster, client, "stays")
    keys = [f"customer-{number}" for number in range(8)]
    before = {key: client.send(topic, key, sharding_key=key).broker_name for key in keys}
    of_b = [key for key in keys if before[key] == "broker-b"]
    assert 0 < len(of_b) < 8
    b = cluster.brokers["broker-b"]
    b.kill()
    for server in cluster.name_servers:
        server.kill()
        server.start()
    try:
        for server in cluster.name_servers:
            wait_until(lambda server=server: server.holders(topic) == ["broker-a"])  # type: ignore[misc]
        requests.clear()

        def has_asked_who_holds_it() -> bool:
            with pytest.raises(Unavailable, match="broker broker-b"):
                client.send(topic, "x", sharding_key=of_b[0])
            return f"GET /api/v1/routes/{topic}" in requests

        wait_until(has_asked_who_holds_it)
        for key in of_b:
            with pytest.raises(Unavailable, match="broker broker-b"):
                client.send(topic, "x", sharding_key=key)
    finally:
        b.start()
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    assert {key: client.send(topic, key, sharding_key=key).broker_name for key in keys} == before


def test_messages_of_alternating_sharding_keys_go_in_a_request_for_each_broker(
    cluster: BrokersOfCluster, client: Client, requests: list[str]
) -> None:
    topic = made(cluster, client, "alternating")
    keys = [f"customer-{number % 10}" for number in range(60)]
    assert len({client.lane(topic, key) for key in keys}) == 2
    with Producer(client, topic, linger_ms=60_000) as producer:
        futures = [producer.send_later(f"{key} {at}", sharding_key=key) for at, key in enumerate(keys)]
        producer.flush(30)
    assert len([request for request in requests if request.startswith("POST ")]) == 2
    results = [future.result(0) for future in futures]
    where: dict[str, list[SendResult]] = {}
    for key, result in zip(keys, results, strict=True):
        where.setdefault(key, []).append(result)
    for of_key in where.values():
        assert len({(result.broker_name, result.queue_id) for result in of_key}) == 1
        offsets = [result.queue_offset for result in of_key]
        assert offsets == sorted(offsets), "in the order they were put"


def nth(number: int) -> QueueSelector:
    return lambda offered: offered[number % len(offered)]


def test_a_queue_is_selected_among_those_of_all_brokers(
    cluster: BrokersOfCluster, client: Client, requests: list[str]
) -> None:
    topic = made(cluster, client, "selected")
    queues = [MessageQueue(topic, name, queue) for name in ("broker-a", "broker-b") for queue in range(2)]
    assert client.message_queues(topic) == queues
    assert client.broker("broker-b").message_queues(topic) == queues[2:]
    with Producer(client, topic, linger_ms=60_000) as producer:
        for n, queue in enumerate(queues):
            sent = producer.send("now", select_queue=nth(n))
            assert (sent.broker_name, sent.queue_id) == queue[1:]
        requests.clear()
        numbers = range(40)
        futures = [producer.send_later(f"{n}", select_queue=nth(n)) for n in numbers]
        producer.flush(30)
        results = [future.result(0) for future in futures]
        assert len([request for request in requests if request.startswith("POST ")]) == 2
        for n, result in zip(numbers, results, strict=True):
            assert (result.broker_name, result.queue_id) == queues[n % 4][1:]
            assert result.queue_offset == 1 + n // 4, "in the order they were put"
        with pytest.raises(InvalidRequest, match="none of the 4 queues"):
            producer.send("x", select_queue=lambda offered: offered[0]._replace(queue_id=2))
        with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
            producer.send("x", topic="nobody-has-it", select_queue=nth(0))
        b = cluster.brokers["broker-b"]
        b.kill()
        try:
            with pytest.raises(Unavailable, match="broker broker-b"):
                producer.send("x", select_queue=nth(3))
            assert producer.send("x", select_queue=nth(0)).broker_name == "broker-a"
        finally:
            b.start()
    wait_until(lambda: "broker-b" in cluster.name_servers[0].addresses())
    with cluster.brokers["broker-a"].client() as one, Producer(one, topic) as producer:
        assert one.message_queues(topic) == queues[:2]
        assert producer.send("x", select_queue=nth(1)).queue_id == 1
