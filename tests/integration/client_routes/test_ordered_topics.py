"""Ordered topics, whose list of brokers is kept with the topic, against real name servers and brokers.

Contract: a sharding key has one broker for every client, also one that was started while that broker was
away, and by a name server that never heard of it; its messages fail then, and say why, and those of other
keys go on.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import Any

import pytest

from lakemq import Producer
from lakemq.cli.app import main
from lakemq.client import Client, Unavailable
from tests.support.http import Http
from tests.support.name_servers import BrokersOfCluster
from tests.support.ordered_topics import KEYS, forgotten, ordered, sent
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("all_there")


@pytest.mark.parametrize("by", ["the old name server", "a name server that was started anew", "a list"])
def test_a_key_stays_at_its_broker_for_a_client_that_never_heard_of_it(
    cluster: BrokersOfCluster, client: Client, by: str
) -> None:
    topic = ordered(cluster, client, f"stays-{by[-4:].strip()}")
    before = {key: client.send(topic, key, sharding_key=key).broker_name for key in KEYS}
    assert set(before.values()) == {"broker-a", "broker-b"}
    a, b = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        if by == "a name server that was started anew":
            for server in cluster.name_servers:
                server.kill()
                server.start()
                wait_until(lambda server=server: server.holders(topic) == ["broker-a"])  # type: ignore[misc]
        endpoint: Any = [a.endpoint, b.endpoint] if by == "a list" else cluster.endpoint
        with Client(endpoint, timeout_s=5, retries=0) as fresh:
            after = {key: sent(fresh, topic, key) for key in KEYS}
            assert after == {key: name if name == "broker-a" else None for key, name in before.items()}
            assert {fresh.send(topic, "keyless").broker_name for _ in range(4)} == {"broker-a"}
    finally:
        b.start()
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    with Client(cluster.endpoint, timeout_s=5) as fresh:
        assert {key: sent(fresh, topic, key) for key in KEYS} == before


def test_a_producer_repeats_in_order_until_a_broker_is_back_that_no_route_had(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = ordered(cluster, client, "repeats")
    places = {key: client.send(topic, "first", sharding_key=key) for key in KEYS}
    of_b = [key for key in KEYS if places[key].broker_name == "broker-b"]
    of_a = [key for key in KEYS if places[key].broker_name == "broker-a"]
    b = cluster.brokers["broker-b"]
    client.put_topic("beside")
    cluster.wait_for_topic("beside", "broker-a", "broker-b")
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        with (
            Client(cluster.endpoint, retry_until=60) as fresh,
            Producer(fresh, topic, linger_ms=0) as producer,
        ):
            waiting = [producer.send_later(f"{number}", sharding_key=of_b[0]) for number in range(5)]
            for number in range(3):
                assert (
                    producer.send_later(f"{number}", sharding_key=of_a[0]).result(30).broker_name
                    == "broker-a"
                )
                assert producer.send_later("no key", topic="beside").result(30).broker_name == "broker-a"
            assert not any(future.done() for future in waiting), "others go on beside them"
            b.start()
            results = [future.result(60) for future in waiting]
    finally:
        b.start()
    first = places[of_b[0]]
    assert {(result.broker_name, result.queue_id) for result in results} == {("broker-b", first.queue_id)}
    offsets = [result.queue_offset for result in results]
    assert offsets == sorted(offsets)
    assert offsets[0] > first.queue_offset
    cluster.wait_for_topic(topic, "broker-a", "broker-b")


def test_what_selects_a_queue_gets_those_of_the_list(cluster: BrokersOfCluster, client: Client) -> None:
    topic = ordered(cluster, client, "selects")
    queues = client.message_queues(topic)
    assert [queue.broker_name for queue in queues] == ["broker-a"] * 2 + ["broker-b"] * 2
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        with Client(cluster.endpoint, timeout_s=10, retries=0) as fresh, Producer(fresh, topic) as producer:
            assert fresh.message_queues(topic) == queues
            with pytest.raises(Unavailable, match="broker-b"):
                producer.send("x", select_queue=lambda offered: offered[3])
            assert producer.send("x", select_queue=lambda offered: offered[1]).queue_id == 1
        with Producer(cluster.endpoint, topic, retry_until=60) as producer:
            waiting = producer.send_later("waits", select_queue=lambda offered: offered[3])
            with pytest.raises(TimeoutError):
                waiting.result(2)
            b.start()
            assert (waiting.result(60).broker_name, waiting.result().queue_id) == ("broker-b", 1)
    finally:
        b.start()


def test_commands_name_a_broker_that_only_the_list_names(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "named"), ("--endpoint", cluster.endpoint)
    client.send(topic, "x", sharding_key=next(key for key in KEYS if client.lane(topic, key) == "broker-a"))
    assert main(["ha", "status", *endpoint]) == 0
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        capsys.readouterr()
        assert main(["ha", "status", *endpoint]) == 1
        shown = capsys.readouterr().out
        assert "broker-b" in shown
        assert "no route has it, and the list of ordered topic" in shown
        assert main(["ha", "status", "--format", "json", *endpoint]) == 1
        row = next(one for one in json.loads(capsys.readouterr().out) if one["broker_name"] == "broker-b")
        assert "no route has it" in row["unavailable"]
        assert main(["tail", topic, *endpoint]) == 1
        tailed = capsys.readouterr()
        assert f"left out: broker broker-b is away: the list of topic {topic} names it" in tailed.err
        assert tailed.out
        assert main(["topic", "order", topic, "--execute", *endpoint]) == 1
        assert "broker broker-b is away" in capsys.readouterr().err
        assert main(["topic", "show", topic, *endpoint]) == 1
        shown_topic = capsys.readouterr()
        assert f"left out: broker broker-b is away: the list of topic {topic} names it" in shown_topic.err
        assert "broker-a" in shown_topic.out
    finally:
        b.start()


def test_a_group_is_moved_on_all_brokers_of_an_ordered_topics_list_or_on_one_that_is_named(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "moved"), ("--endpoint", cluster.endpoint)
    client.send(topic, "x", sharding_key=next(key for key in KEYS if client.lane(topic, key) == "broker-a"))
    client.put_group("moved")
    reset = ["group", "reset", "moved", "--topic", topic, "--to", "latest", *endpoint]
    assert main(reset) == 0
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        capsys.readouterr()
        for how in ([], ["--execute"]):
            assert main([*reset, *how]) == 1
            said = capsys.readouterr().err
            assert f"broker broker-b is away: the list of topic {topic} names it" in said
            assert "Nothing was moved" in said
        assert client.group_offsets("moved", broker_name="broker-a") == {}
        assert main([*reset, "--execute", "--broker", "broker-a"]) == 0
        assert sum(client.group_offsets("moved", broker_name="broker-a").values()) == 1
    finally:
        b.start()


def test_commands_about_groups_and_messages_name_a_broker_that_was_not_asked(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "not-asked"), ("--endpoint", cluster.endpoint)
    places = {key: client.send(topic, "x", keys=[key], sharding_key=key).broker_name for key in KEYS}
    of_a, of_b = (next(key for key in KEYS if places[key] == name) for name in ("broker-a", "broker-b"))
    client.put_group("not-asked")
    client.commit_offsets("not-asked", {(topic, 0): 0}, broker_name="broker-a")
    client.commit_offsets("not-asked", {(topic, 0): 0}, broker_name="broker-b")
    find = ["message", "find", "--topic", topic, *endpoint, "--key"]
    for key in (of_a, of_b):
        wait_until(lambda key=key: main([*find, key]) == 0)  # type: ignore[misc]
    assert main([*find, "none"]) == 1
    nowhere = ["message", "show", "7F0000010000000000000000DEADBEEF", *endpoint]
    assert main(nowhere) == 1
    assert main(["group", "offsets", "not-asked", *endpoint]) == 0
    b = cluster.brokers["broker-b"]
    os.kill(b.pid, signal.SIGSTOP)
    try:
        capsys.readouterr()
        assert main([*find, of_b]) == 3
        assert "not asked: " in (said := capsys.readouterr()).err
        assert "broker-b" in said.err
        assert said.out == "", "that there is none is not known"
    finally:
        os.kill(b.pid, signal.SIGCONT)
        b.kill()
    try:
        forgotten(cluster, "broker-b")
        capsys.readouterr()
        for key, form in ((of_b, "table"), (of_a, "table"), (of_b, "json"), ("none", "json")):
            assert main([*find, key, "--format", form]) == 3
            said = capsys.readouterr()
            assert f"not asked: broker broker-b is away: the list of topic {topic} names it" in said.err
            assert ("broker-a" in said.out) is (key == of_a)
            assert "no message" not in said.out
        for which in ([], ["--topic", topic]):
            assert main([*nowhere, *which]) == 3
            assert "not asked: broker broker-b is away" in capsys.readouterr().err
        for which in (
            ["offsets", "not-asked"],
            ["offsets", "not-asked", "--topic", topic],
            ["show", "not-asked"],
        ):
            assert main(["group", *which, *endpoint]) == 1
            said = capsys.readouterr()
            assert "left out: SERVICE_NOT_AVAILABLE: broker broker-b is away: the list of topic" in said.err
            assert "broker-a" in said.out
    finally:
        b.start()
    assert main(["message", "find", "--topic", topic, "--key", of_a, "--endpoint", "http://127.0.0.1:1"]) == 3


def test_a_broker_that_hangs_holds_up_the_status_of_the_others_for_one_question(
    cluster: BrokersOfCluster,
    client: Client,
    asked: Counter[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    ordered(cluster, client, "hangs-beside")
    b = cluster.brokers["broker-b"]
    asked.clear()
    os.kill(b.pid, signal.SIGSTOP)
    try:
        assert main(["ha", "status", "--endpoint", cluster.endpoint]) == 1
        assert asked[b.port] == 1
        assert "0 slaves follow" in capsys.readouterr().out, "the other one is shown"
    finally:
        os.kill(b.pid, signal.SIGCONT)


def test_a_topic_whose_only_broker_is_away_is_made_nowhere_else(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ("--endpoint", cluster.endpoint)
    command = ["topic", "create", "alone", "--ordered", "--brokers", "broker-b", "--queues", "2"]
    assert main([*command, "--attribute", "team=billing", *endpoint]) == 0
    cluster.wait_for_topic("alone", "broker-b")
    assert client.topic("alone").attributes["team"] == "billing"
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        with Client(cluster.endpoint, timeout_s=10, retries=0) as fresh:
            assert sent(fresh, "alone", "1") is None
            with pytest.raises(Unavailable, match="no broker that is known takes messages"):
                fresh.send("alone", "keyless")
        assert main(["tail", "alone", *endpoint]) == 1
        assert "the list of topic alone names it" in capsys.readouterr().err
    finally:
        b.start()
    cluster.wait_for_topic("alone", "broker-b")
    client.delete_topic("alone")
    for server in cluster.name_servers:
        wait_until(lambda server=server: Http(server.url).get("/routes/alone").status == 404)  # type: ignore[misc]


def test_a_broker_that_is_away_at_a_producers_first_message_fails_its_own_keys_only(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic, plain = ordered(cluster, client, "first-fails"), "first-fails-plain"
    client.put_topic(plain)
    cluster.wait_for_topic(plain, "broker-a", "broker-b")
    places = {key: client.send(topic, "x", sharding_key=key).broker_name for key in KEYS}
    of_a, of_b = (next(key for key in KEYS if places[key] == name) for name in ("broker-a", "broker-b"))
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        with Producer(cluster.endpoint, topic, timeout_s=10, linger_ms=1_000) as producer:
            # One message is a batch that says nothing of lanes: the producer has heard of no route.
            failed = producer.send_later("b's", sharding_key=of_b)
            others = [
                producer.send_later("other key", topic=plain, sharding_key=of_a),
                producer.send_later("no key", topic=plain),
            ]
        with pytest.raises(Unavailable, match="broker broker-b"):
            failed.result(0)
        assert {future.result(0).broker_name for future in others} == {"broker-a"}
    finally:
        b.start()
