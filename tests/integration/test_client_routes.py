"""Clients and commands with a list of endpoints, against real name servers and brokers.

Contract: whoever has the list finds every broker; a topic is made on every master; a broker that dies is
named, and the rest go on; a master that dies is read from its slave, and is not used any more once another
was promoted; one broker's address costs no further request; a call lasts no longer than it was given,
whoever hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from urllib3 import HTTPConnectionPool

from lakemq import Producer
from lakemq.cli.app import main
from lakemq.client import (
    Client,
    InvalidRequest,
    Message,
    MessageQueue,
    OutcomeUnknown,
    SendResult,
    Unavailable,
)
from lakemq.producer import QueueSelector
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    """Two name servers, masters a and b; tests that end one start it again."""
    with BrokersOfCluster(tmp_path_factory.mktemp("cluster"), name_servers=2) as started:
        started.master("broker-a")
        started.master("broker-b")
        yield started


@pytest.fixture
def client(cluster: BrokersOfCluster) -> Iterator[Client]:
    with Client(cluster.endpoint, timeout_s=10) as connected:
        yield connected


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of all clients, as ``METHOD /path``."""
    made: list[str] = []
    urlopen = HTTPConnectionPool.urlopen

    def noted(self: HTTPConnectionPool, method: str, url: str, **how: Any) -> Any:
        made.append(f"{method} {url}")
        return urlopen(self, method, url, **how)

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", noted)
    return made


def made(cluster: BrokersOfCluster, client: Client, topic: str) -> str:
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    return topic


def bodies(broker: Client, topic: str) -> list[str]:
    return [m.body.decode() for queue in range(2) for m in broker.pull(topic, queue, 0, max=1000).messages]


def test_topics_and_groups_are_made_on_every_master_and_listed_once(
    cluster: BrokersOfCluster, client: Client
) -> None:
    made(cluster, client, "made-everywhere")
    client.put_group("made-everywhere")
    for broker in cluster.brokers.values():
        with broker.client() as one:
            assert one.topic("made-everywhere").write_queue_nums == 2
            assert one.group("made-everywhere").retry_max_times == 16
    assert [t.topic for t in client.topics()].count("made-everywhere") == 1
    assert [g.group for g in client.groups()] == ["made-everywhere"]
    client.delete_group("made-everywhere")
    client.delete_topic("made-everywhere")
    with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
        client.topic("made-everywhere")


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


def test_one_name_server_is_found_out_and_one_broker_costs_nothing_besides(
    cluster: BrokersOfCluster, client: Client, requests: list[str]
) -> None:
    topic = made(cluster, client, "found-out")
    with Client(cluster.name_servers[0].url) as by_name_server:
        assert by_name_server.send(topic, "1").status == "SEND_OK"
        assert set(by_name_server.brokers()) == {"broker-a", "broker-b"}
    with cluster.brokers["broker-a"].client() as one:
        requests.clear()
        assert one.send(topic, "2").broker_name == "broker-a"
        assert one.pull(topic, 0, 0).status in ("FOUND", "NO_NEW_MSG")
        assert len(requests) == 2
        assert set(one.brokers()) == {"broker-a"}


def test_a_broker_that_dies_is_named_and_the_rest_go_on(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, client, "dies")
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        sent = [client.send(topic, str(number), idempotency_key=f"k{number}") for number in range(6)]
        assert {result.broker_name for result in sent} == {"broker-a"}
        assert not any(result.repeated_elsewhere for result in sent), "nothing had been sent to b"
        with pytest.raises(Unavailable, match="broker broker-b"):
            client.queues(topic, broker_name="broker-b")
        with pytest.raises(Unavailable, match=r"broker broker-b.*; done on broker-a"):
            client.put_topic("half", read_queue_nums=1, write_queue_nums=1)
        assert topic in [config.topic for config in client.topics()]
        assert main(["tail", topic, "--endpoint", cluster.endpoint]) == 1
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 6
        assert "broker-b" in shown.err
    finally:
        b.start()
    wait_until(lambda: "broker-b" in cluster.name_servers[0].addresses())
    client.put_topic("half", read_queue_nums=1, write_queue_nums=1)
    wait_until(lambda: client.send(topic, "again", idempotency_key=None).broker_name == "broker-b")


def test_known_routes_go_on_without_name_servers(cluster: BrokersOfCluster, client: Client) -> None:
    topic = made(cluster, client, "without")
    client.send(topic, "before")
    for server in cluster.name_servers:
        server.kill()
    try:
        assert {client.send(topic, "now").broker_name for _ in range(4)} == {"broker-a", "broker-b"}
    finally:
        for server in cluster.name_servers:
            server.start()
    cluster.wait_for_topic(topic, "broker-a", "broker-b")


def test_commands_take_a_list(
    cluster: BrokersOfCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ("--endpoint", cluster.endpoint)
    assert main(["topic", "create", "listed", "--queues", "2", *endpoint]) == 0
    shown = capsys.readouterr().out
    assert "broker-a" in shown
    assert "broker-b" in shown
    cluster.wait_for_topic("listed", "broker-a", "broker-b")
    lines = tmp_path / "lines.ndjson"
    lines.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(40)))
    assert main(["produce", "listed", "--input", str(lines), "--batch", "10", *endpoint]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "20 at broker-a, 20 at broker-b"
    assert main(["tail", "listed", "--format", "json", *endpoint]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(json.loads(m["body"])["id"] for m in messages) == list(range(40))
    assert main(["group", "create", "listed", *endpoint]) == 0
    with Client(cluster.endpoint) as client:
        client.commit_offsets("listed", {("listed", 0): 1}, broker_name="broker-a")
        client.commit_offsets("listed", {("listed", 0): 2}, broker_name="broker-b")
    capsys.readouterr()
    assert main(["group", "offsets", "listed", "--format", "json", *endpoint]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["broker_name"], row["offset"]) for row in rows] == [("broker-a", 1), ("broker-b", 2)]
    assert (
        main(["group", "reset", "listed", "--topic", "listed", "--to", "earliest", "--execute", *endpoint])
        == 0
    )
    capsys.readouterr()
    main(["group", "offsets", "listed", "--format", "json", *endpoint])
    assert [row["offset"] for row in json.loads(capsys.readouterr().out)] == [0, 0, 0, 0]


def test_a_line_of_text_names_the_broker_of_a_message(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = made(cluster, client, "named-brokers"), ("--endpoint", cluster.endpoint)
    assert main(["produce", topic, "--body", "x", "--key", "k", *endpoint]) == 0
    *_, name, place = capsys.readouterr().out.split()
    assert name in ("broker-a", "broker-b")
    wait_until(lambda: sum(len(bodies(broker, topic)) for broker in client.brokers().values()) == 1)
    assert main(["tail", topic, *endpoint]) == 0
    assert capsys.readouterr().out.split()[1:] == [name, place, "-", "k", "x"]
    wait_until(lambda: main(["message", "find", "--topic", topic, "--key", "k", *endpoint]) == 0)
    columns, found = (line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert dict(zip(columns, found, strict=True))["broker_name"] == name


def test_a_topic_that_a_broker_lacks_is_told_of_and_made_there(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.brokers["broker-b"].client() as one:
        one.put_topic("half-there", read_queue_nums=1, write_queue_nums=1)
    cluster.wait_for_topic("half-there", "broker-b")
    endpoint = ("--endpoint", cluster.endpoint)
    assert main(["topic", "create", "half-there", *endpoint]) == 1
    assert "update changes it, and makes it at broker-a, where it is not" in capsys.readouterr().err
    assert main(["topic", "update", "half-there", *endpoint]) == 0
    assert main(["topic", "create", "half-there", *endpoint]) == 1
    assert capsys.readouterr().err.endswith("lakemq topic update changes it\n")


def test_lines_of_a_file_go_to_the_brokers_of_their_sharding_keys(
    cluster: BrokersOfCluster, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, client, "sharded-lines")
    lines = [{"body": f"{n % 8} {n}", **({"sharding_key": f"{n % 8}"} if n % 8 else {})} for n in range(80)]
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["produce", topic, "--endpoint", cluster.endpoint, "--batch", "20", "--input", str(file)]
    assert main(command) == 0
    found: dict[str, set[tuple[str, int]]] = {}
    stored: list[str] = []
    for name, broker in client.brokers(topic).items():
        for queue in range(2):
            messages = [m.body.decode() for m in broker.pull(topic, queue, 0, max=1000).messages]
            stored += messages
            for key in {body.split()[0] for body in messages} - {"0"}:
                found.setdefault(key, set()).add((name, queue))
                numbers = [int(body.split()[1]) for body in messages if body.startswith(f"{key} ")]
                assert numbers == sorted(numbers), "in the order of the file"
    assert sorted(stored) == sorted(str(line["body"]) for line in lines)
    assert all(len(places) == 1 for places in found.values())
    assert len({name for places in found.values() for name, _ in places}) == 2
    lines[27] = {"body": "x", "sharding_key": "3", "delay_level": "soon"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(command) == 1
    assert "line 28" in capsys.readouterr().err


def test_a_producer_goes_on_at_another_broker(cluster: BrokersOfCluster, client: Client) -> None:
    topic = made(cluster, client, "producer")
    with Producer(cluster.endpoint, topic, linger_ms=0) as producer:
        first = [producer.send_later(str(number)) for number in range(20)]
        assert all(future.result(30).status == "SEND_OK" for future in first)
        a = cluster.brokers["broker-a"]
        a.kill()
        try:
            later = [producer.send(str(number)) for number in range(20)]
            assert {result.broker_name for result in later} == {"broker-b"}
            keyed = [producer.send_later(str(n), sharding_key=str(n)) for n in range(20)]
            producer.flush(30)
            failed = [future.exception() for future in keyed if future.exception() is not None]
            assert 0 < len(failed) < 20, "a sharding key waits for its broker, the others go on"
            assert all("broker broker-a" in str(error) for error in failed)
        finally:
            a.start()
    wait_until(lambda: "broker-a" in cluster.name_servers[0].addresses())


def test_a_master_that_dies_is_read_from_its_slave_and_followed_when_the_slave_is_promoted(
    tmp_path: Path,
) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a")
        slave = cluster.slave("broker-a")
        with Client(cluster.endpoint, timeout_s=5) as client:
            client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
            cluster.wait_for_topic("t", "broker-a")
            client.send("t", "one")
            broker = client.broker("broker-a")
            assert not broker.queues("t")[0].from_slave
            wait_until(lambda: _confirmed(slave, "t") == 1)
            master.kill()
            assert broker.queues("t")[0].from_slave
            assert [m.body for m in broker.pull("t", 0, 0).messages] == [b"one"]
            with pytest.raises(Unavailable, match="broker broker-a"):
                client.send("t", "two")
            with slave.client() as promoted:
                promoted.promote()
            wait_until(lambda: _sends(client, "t"))
            assert [m.body for m in broker.pull("t", 0, 0).messages] == [b"one", b"three"]


def test_one_name_server_of_two_is_enough(cluster: BrokersOfCluster, client: Client) -> None:
    topic = made(cluster, client, "one-is-enough")
    for at, server in enumerate(cluster.name_servers):
        server.kill()
        try:
            with Client(cluster.endpoint, timeout_s=5) as fresh:
                assert {fresh.send(topic, "x").broker_name for _ in range(4)} == {"broker-a", "broker-b"}
                assert fresh.cluster_routes.routes.unknown() == []
                fresh.put_topic(f"made-without-{at}")
        finally:
            server.start()
        cluster.wait_for_topic(topic, "broker-a", "broker-b")


def test_a_broker_of_a_list_that_never_answered_is_named_where_every_master_is_meant(
    cluster: BrokersOfCluster,
) -> None:
    a, b = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
    b.kill()
    try:
        with Client([a.endpoint, b.endpoint], timeout_s=5) as client:
            with pytest.raises(Unavailable, match=f"{b.endpoint} never answered.*; done on broker-a"):
                client.put_topic("made-on-one")
            with pytest.raises(Unavailable, match="never answered"):
                client.delete_group("nobody-has-it")
            assert client.topic("made-on-one").topic == "made-on-one"
    finally:
        b.start()
    with Client([a.endpoint, b.endpoint], timeout_s=5) as client:
        client.put_topic("made-on-one")
        assert set(client.brokers("made-on-one")) == {"broker-a", "broker-b"}
    wait_until(lambda: all("broker-b" in server.addresses() for server in cluster.name_servers))


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


def test_a_broker_name_that_nobody_has_is_refused_and_the_known_ones_are_named(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = made(cluster, client, "named")
    with cluster.brokers["broker-a"].client() as one:
        for wrong in ("broker-b", "nonsense"):
            with pytest.raises(InvalidRequest, match=f"is broker broker-a, .*'{wrong}' is not known"):
                one.broker(wrong)
            with pytest.raises(InvalidRequest, match="is broker broker-a"):
                one.queues(topic, broker_name=wrong)
        assert len(one.queues(topic, broker_name="broker-a")) == 2
        assert one.broker("broker-a").queues(topic)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="'nonsense'; those that are: broker-a, broker-b"):
        client.queues(topic, broker_name="nonsense")
    with pytest.raises(Unavailable, match="'nonsense'; those that are: broker-a, broker-b"):
        client.broker("nonsense").pull(topic, 0, 0)
    with pytest.raises(InvalidRequest, match="is broker broker-a"):
        client.broker("broker-a").queues(topic, broker_name="broker-b")
    assert time.monotonic() - began < 5, "nobody is waited for"


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


def test_a_call_lasts_no_longer_than_it_was_given_though_a_name_server_hangs(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = made(cluster, client, "hangs")
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never answers
        hanging = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def took(call: Any) -> float:
            began = time.monotonic()
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                call()
            return time.monotonic() - began

        with Client([hanging, cluster.name_servers[0].url], timeout_s=2) as beside:
            results: list[SendResult] = []
            assert took(lambda: results.append(beside.send(topic, "x"))) < 2
            assert took(lambda: results.append(beside.send(topic, "y"))) < 0.5, "it is not asked again"
            assert [result.status for result in results] == ["SEND_OK", "SEND_OK"]
        for call in (
            lambda one: one.send(topic, "x", idempotency_key="k"),
            lambda one: one.topics(),
            lambda one: one.topic(topic),
            lambda one: one.put_topic(topic),
            lambda one: one.queues(topic, broker_name="broker-a"),
            lambda one: one.brokers(),
            lambda one: one.broker("broker-a").queues(topic),
        ):
            with Client([hanging, hanging.replace("127.0.0.1", "localhost")], timeout_s=1) as alone:
                assert took(lambda call=call, alone=alone: call(alone)) < 1.4


def test_two_brokers_of_one_name_are_refused_by_their_addresses(tmp_path: Path) -> None:
    brokers = [BrokerProcess(tmp_path / str(number), broker_name="broker-a") for number in range(2)]
    try:
        addresses = [broker.endpoint for broker in brokers]
        with Client(addresses, timeout_s=5) as client:
            for call in (lambda: client.send("t", "x"), lambda: client.put_topic("t")):
                with pytest.raises(InvalidRequest, match=" and ".join(addresses)):
                    call()
    finally:
        for broker in brokers:
            broker.close()


def test_an_old_master_gets_nothing_while_the_promoted_slave_hangs(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a")
        slave = cluster.slave("broker-a")
        with Client([master.endpoint, slave.endpoint], timeout_s=2) as client:
            client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
            client.send("t", "one")
            wait_until(lambda: _confirmed(slave, "t") == 1)
            master.kill()
            with slave.client() as promoted:
                promoted.promote()
            wait_until(lambda: _sends(client, "t"))
            master.start()
            os.kill(slave.pid, signal.SIGSTOP)
            try:
                for number in range(4):
                    with pytest.raises((Unavailable, OutcomeUnknown)):
                        client.send("t", str(number), idempotency_key=str(number))
            finally:
                os.kill(slave.pid, signal.SIGCONT)
            assert _confirmed(master, "t") == 1, "nothing but what it had"
            wait_until(lambda: _sends(client, "t"))


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


def _confirmed(broker: BrokerProcess, topic: str) -> int:
    with broker.client() as client:
        try:
            return sum(queue.confirmed_offset for queue in client.queues(topic))
        except InvalidRequest:
            return 0


def _sends(client: Client, topic: str) -> bool:
    try:
        return client.send(topic, "three").status == "SEND_OK"
    except Unavailable:
        return False
