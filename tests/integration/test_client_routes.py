"""Clients and commands with a list of endpoints, against real name servers and brokers.

Contract: whoever has the list finds every broker; a topic is made on every master; a broker that dies is
named, and the rest go on; a master that dies is read from its slave; one broker's address costs no further
request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from urllib3 import HTTPConnectionPool

from lakemq import Producer
from lakemq.cli.app import main
from lakemq.client import Client, InvalidRequest, Message, Unavailable
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
    cluster: BrokersOfCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(cluster, client, "found-out")
    with Client(cluster.name_servers[0].url) as by_name_server:
        assert by_name_server.send(topic, "1").status == "SEND_OK"
        assert set(by_name_server.brokers()) == {"broker-a", "broker-b"}
    with cluster.brokers["broker-a"].client() as one:
        calls: list[str] = []
        urlopen = HTTPConnectionPool.urlopen

        def counted(self: HTTPConnectionPool, method: str, url: str, **how: Any) -> Any:
            calls.append(url)
            return urlopen(self, method, url, **how)

        monkeypatch.setattr(HTTPConnectionPool, "urlopen", counted)
        assert one.send(topic, "2").broker_name == "broker-a"
        assert one.pull(topic, 0, 0).status in ("FOUND", "NO_NEW_MSG")
        assert len(calls) == 2
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
    capsys.readouterr()
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
