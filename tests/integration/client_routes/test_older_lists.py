"""Sends by an older list of an ordered topic's brokers, against real name servers and brokers.

Contract: a broker stores no message of a sharding key that its list gives to another broker, whoever sends
it, unless the sender knows a newer list; what it refuses is stored nowhere, and a client that is refused
sends it where it belongs, under the same key.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pyarrow as pa
import pytest

from lakemq import Producer, aio
from lakemq.client import Client, InvalidRequest, Message, OutcomeUnknown
from store_native.order_conf import OrderConf
from store_native.sharding import in_order, of_sharding_key
from structured_streaming.options import parse_write
from structured_streaming.sink.sender import send_all
from tests.support.http import Http
from tests.support.name_servers import BrokersOfCluster
from tests.support.ordered_topics import KEYS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("all_there")


def place(conf: OrderConf, key: str) -> str:
    return of_sharding_key(key, in_order(conf.write_queue_nums))


def moved(cluster: BrokersOfCluster, client: Client, topic: str, old: Client) -> str:
    """Orders a topic over broker a, which another client hears of, and then over b; returns the new list."""
    client.order_topic(topic, ["broker-a"], queues=2)
    cluster.wait_for_topic(topic, "broker-a")
    assert old.send(topic, "first", sharding_key=KEYS[0]).broker_name == "broker-a"
    return client.order_topic(topic, ["broker-b"]).order_conf.brokers


def bodies(cluster: BrokersOfCluster, name: str, topic: str) -> list[str]:
    """What a broker has of a topic, in the order of its queues."""
    with cluster.brokers[name].client() as one:
        found = [
            message
            for queue in one.queues(topic)
            for message in one.pull(topic, queue.queue_id, queue.min_offset).messages
        ]
    return [bytes(message.body).decode() for message in found]


def test_a_client_that_was_not_told_of_another_list_sends_where_it_says(
    cluster: BrokersOfCluster, client: Client
) -> None:
    with Client(cluster.endpoint) as old:
        topic = "not-told"
        assert moved(cluster, client, topic, old) == "broker-b:2"
        known = old.cluster_routes.routes.known_order_conf(topic)
        assert known is not None
        assert known.brokers == "broker-a:2", "it has not heard of the change"
        result = old.send(topic, "second", sharding_key=KEYS[0], idempotency_key="of-the-second")
        assert (result.broker_name, result.repeated_elsewhere) == ("broker-b", False)
        again = old.send(topic, "second", sharding_key=KEYS[0], idempotency_key="of-the-second")
        assert (again.message_id, again.duplicate) == (result.message_id, True)
        known = old.cluster_routes.routes.known_order_conf(topic)
        assert known is not None
        assert known.brokers == "broker-b:2", "the refusal said it"
    assert bodies(cluster, "broker-a", topic) == ["first"]
    assert bodies(cluster, "broker-b", topic) == ["second"]


def test_of_sends_that_are_refused_together_each_goes_where_the_newer_list_says(
    cluster: BrokersOfCluster, client: Client
) -> None:
    """One is the first to hear of the list; to the others it is as new."""
    with Client(cluster.endpoint) as old:
        moved(cluster, client, "together", old)
        before = old.cluster_routes.routes.known_order_conf("together")
        with (
            cluster.brokers["broker-a"].client() as one,
            pytest.raises(InvalidRequest, match="WRONG_BROKER") as refused,
        ):
            one.send("together", "x", sharding_key=KEYS[0])
        for _ in range(2):
            assert old.cluster_routes.learned("together", refused.value, before)
        newer = old.cluster_routes.routes.known_order_conf("together")
        assert not old.cluster_routes.learned("together", refused.value, newer)


@pytest.mark.parametrize("form", ["many", "arrow", "aio"])
def test_every_form_of_a_send_follows_the_list(cluster: BrokersOfCluster, client: Client, form: str) -> None:
    topic = f"form-{form}"
    with Client(cluster.endpoint) as old:
        moved(cluster, client, topic, old)
        if form == "many":
            result: Any = old.send_many(topic, [Message("x", sharding_key=key) for key in KEYS])
        elif form == "arrow":
            result = old.send_arrow(topic, pa.table({"body": [b"x"] * 12, "sharding_key": KEYS}))
        else:
            result = asyncio.run(sent_by_aio(old, topic))
    assert result.broker_name == "broker-b"
    assert bodies(cluster, "broker-a", topic) == ["first"]


async def sent_by_aio(old: Client, topic: str) -> Any:
    async with aio.Client(old.endpoint) as client:
        # Its own routes are made those of the client that was not told.
        routes = old.cluster_routes.routes
        known = routes.known(topic)
        assert known is not None
        client.synchronous.cluster_routes.routes._topics.put(topic, known)  # noqa: SLF001
        return await client.send(topic, "x", sharding_key=KEYS[0])


def test_a_producers_batch_is_taken_apart_where_another_list_spreads_it(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "batch"
    client.order_topic(topic, ["broker-a"], queues=2)
    cluster.wait_for_topic(topic, "broker-a")
    with Client(cluster.endpoint) as old, Producer(old, topic, linger_ms=60_000) as producer:
        old.send(topic, "before", sharding_key=KEYS[0])
        conf = client.order_topic(topic, {"broker-a": 2, "broker-b": 2}).order_conf
        futures = [
            (key, number, producer.send_later(f"{key}/{number}", sharding_key=key))
            for number in range(5)
            for key in KEYS
        ]
        producer.flush()
        found = {(key, number): future.result(0) for key, number, future in futures}
    assert {(key, result.broker_name) for (key, _), result in found.items()} == {
        (key, place(conf, key)) for key in KEYS
    }
    for key in KEYS:
        offsets = [found[key, number].queue_offset for number in range(5)]
        assert offsets == sorted(offsets)
    stored = bodies(cluster, "broker-a", topic) + bodies(cluster, "broker-b", topic)
    assert sorted(stored) == sorted(["before", *(f"{key}/{number}" for key, number in found)]), "each once"


def test_a_sender_that_says_no_version_is_refused_and_told_the_list(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "no-version"
    conf = client.order_topic(topic, queues=2).order_conf
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    http = Http(cluster.brokers["broker-a"].endpoint)
    of_a, of_b = (next(k for k in KEYS if place(conf, k) == n) for n in ("broker-a", "broker-b"))
    path = f"/topics/{topic}/messages"
    line = json.dumps({"body": "x", "sharding_key": of_b}).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"body": pa.binary(), "sharding_key": pa.string()})) as writer:
        writer.write(pa.record_batch({"body": [b"x"], "sharding_key": [of_b]}))
    forms = {
        "application/json": line,
        "application/json; charset=utf-8": json.dumps({"messages": [json.loads(line)]}).encode(),
        "application/x-ndjson": b'{"body":"x"}\n' + line + b"\n",
        "application/vnd.apache.arrow.stream": sink.getvalue().to_pybytes(),
        "text/plain": b"x",
    }
    for kind, body in forms.items():
        raw = {"X-LakeMQ-Sharding-Key": of_b} if kind == "text/plain" else {}
        answer = http.call("POST", path, body, {"Content-Type": kind, **raw})
        said = answer.json
        assert (kind, answer.status, said["code"], said["retryable"]) == (kind, 409, "WRONG_BROKER", False)
        assert said["order_conf"] == {"version": conf.version, "brokers": conf.brokers}
        assert said["broker_name"] == "broker-b"
        assert f"{conf.brokers} (version {conf.version})" in said["detail"]
    assert bodies(cluster, "broker-a", topic) == []
    mine = json.dumps({"body": "a", "sharding_key": of_a}).encode()
    chosen = json.dumps({"body": "chosen", "sharding_key": of_b, "queue_id": 0}).encode()
    none = json.dumps({"body": '"sharding_key"'}).encode()
    for body in (mine, chosen, none):
        assert http.call("POST", path, body, {"Content-Type": "application/json"}).status == 200
    with (
        cluster.brokers["broker-a"].client() as one,
        pytest.raises(InvalidRequest, match=r"WRONG_BROKER.*broker-b"),
    ):
        one.send(topic, "x", sharding_key=of_b)


def test_a_broker_with_an_older_list_does_not_refuse_what_is_right_by_a_newer_one(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "behind"
    client.order_topic(topic, queues=2)
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    a = cluster.brokers["broker-a"]
    newer = client.order_topic(topic, ["broker-a"], dry_run=True).order_conf
    client.cluster_routes.routes.learned(topic, newer)  # as if the change reached this client first
    assert {client.send(topic, "x", sharding_key=key).broker_name for key in KEYS} == {"broker-a"}
    with a.client() as one:
        assert one.topic(topic).order_conf != newer
    answer = Http(a.endpoint).call(
        "POST",
        f"/topics/{topic}/messages",
        b'{"body":"x","sharding_key":"1"}',
        {"Content-Type": "application/json", "LakeMQ-Order-Version": "one"},
    )
    assert (answer.status, answer.json["code"]) == (422, "ARGUMENT_ILLEGAL")


def test_a_repeat_of_what_was_stored_is_answered_also_where_the_list_has_changed(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "repeat"
    client.order_topic(topic, ["broker-a"], queues=2)
    cluster.wait_for_topic(topic, "broker-a")
    with Client(cluster.endpoint) as old:
        first = old.send(topic, "x", sharding_key="1", idempotency_key="repeat-1")
        client.order_topic(topic, ["broker-b"])
        again = old.send(topic, "x", sharding_key="1", idempotency_key="repeat-1")
    assert (again.message_id, again.broker_name, again.duplicate) == (first.message_id, "broker-a", True)


def test_a_repeat_of_what_got_no_answer_is_stored_once_where_the_list_has_changed_since(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "no-answer"
    client.order_topic(topic, ["broker-a"], queues=2)
    cluster.wait_for_topic(topic, "broker-a")
    a = cluster.brokers["broker-a"]
    with Client(cluster.endpoint, timeout_s=5, retries=0) as sender:
        sender.send(topic, "before", sharding_key=KEYS[0])
        os.kill(a.pid, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown) as unknown:
                sender.send(topic, "once", sharding_key=KEYS[0], idempotency_key="no-answer-1")
            newer = client.order_topic(topic, ["broker-b"]).order_conf
        finally:
            os.kill(a.pid, signal.SIGCONT)
        wait_until(lambda: bodies(cluster, "broker-a", topic) == ["before", "once"])
        sender.cluster_routes.routes.learned(topic, newer)
        key = unknown.value.idempotency_key
        again = sender.send(topic, "once", sharding_key=KEYS[0], idempotency_key=key)
        assert (again.broker_name, again.duplicate, again.repeated_elsewhere) == ("broker-a", True, False)
        assert sender.send(topic, "next", sharding_key=KEYS[0]).broker_name == "broker-b"
    assert bodies(cluster, "broker-b", topic) == ["next"]


def test_a_send_whose_new_broker_is_away_waits_for_it_with_retry_until(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "new-broker-hangs"
    with Client(cluster.endpoint, timeout_s=5) as old:
        moved(cluster, client, topic, old)
        b = cluster.brokers["broker-b"]
        os.kill(b.pid, signal.SIGSTOP)
        try:
            with Producer(old, topic, retry_until=60) as producer:
                future = producer.send_later("waits", sharding_key=KEYS[0])
                with pytest.raises(TimeoutError):
                    future.result(3)
                os.kill(b.pid, signal.SIGCONT)
                assert future.result(60).broker_name == "broker-b"
        finally:
            os.kill(b.pid, signal.SIGCONT)
    assert bodies(cluster, "broker-b", topic) == ["waits"]


def test_a_sink_of_one_brokers_address_is_refused_what_is_anothers_and_of_both_goes_by_the_list(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "sink"
    conf = client.order_topic(topic, {"broker-a": 1, "broker-b": 3}).order_conf
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    rows = pa.record_batch({"body": [key.encode() for key in KEYS], "sharding_key": KEYS})
    given = {"topic": topic, "retryTimeoutMs": "5000"}
    one = parse_write({**given, "endpoint": cluster.brokers["broker-a"].endpoint})
    with pytest.raises(InvalidRequest, match=r"WRONG_BROKER: .*are broker broker-b's, not broker-a's"):
        send_all(one, "spark/one/0/0", iter([rows]))
    names = cluster.name_servers[0].url  # one address, of which nobody knows what it is
    both = parse_write({**given, "endpoint": names, "brokers": "broker-a,broker-b"})
    assert send_all(both, "spark/both/0/0", iter([rows])).rows == len(KEYS)
    for name in ("broker-a", "broker-b"):
        assert set(bodies(cluster, name, topic)) == {key for key in KEYS if place(conf, key) == name}
