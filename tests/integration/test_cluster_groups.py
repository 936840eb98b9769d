"""`lakemq group` over several brokers, of which one may be away: nothing is half done without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lakemq.cli.app import main
from lakemq.client import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    """A name server, masters a and b with ten messages each, and a group that is at 2 on both."""
    with BrokersOfCluster(tmp_path_factory.mktemp("cluster")) as started:
        started.master("broker-a")
        started.master("broker-b")
        with Client(started.endpoint) as client:
            client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
            started.wait_for_topic("t", "broker-a", "broker-b")
            client.put_group("g")
            for name, broker in client.brokers().items():
                broker.send_many("t", [Message(b"x") for _ in range(10)])
                client.commit_offsets("g", {("t", 0): 2}, broker_name=name)
        yield started


@pytest.fixture
def without_b(cluster: BrokersOfCluster) -> Iterator[BrokerProcess]:
    b = cluster.brokers["broker-b"]
    b.kill()
    yield b
    b.start()
    wait_until(lambda: "broker-b" in cluster.name_servers[0].addresses())


def at(cluster: BrokersOfCluster, name: str) -> int:
    with cluster.brokers[name].client() as client:
        return client.group_offsets("g")[("t", 0)]


RESET = ("group", "reset", "g", "--topic", "t", "--to", "latest", "--execute")


def test_another_brokers_name_moves_nothing_at_the_one_that_is_asked(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    a = cluster.brokers["broker-a"].endpoint
    assert main([*RESET, "--broker", "broker-b", "--endpoint", a]) != 0
    assert "broker-a" in capsys.readouterr().err
    assert at(cluster, "broker-a") == 2


def test_a_reset_moves_no_broker_while_one_is_away(
    cluster: BrokersOfCluster, without_b: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RESET, "--endpoint", cluster.endpoint]) != 0
    assert "broker-b" in capsys.readouterr().err
    assert at(cluster, "broker-a") == 2


def test_the_lag_of_those_that_answer_is_shown_and_who_is_left_out_is_named(
    cluster: BrokersOfCluster, without_b: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = ",".join(broker.endpoint for broker in cluster.brokers.values())
    for endpoint, away in ((cluster.endpoint, "broker-b"), (brokers, without_b.endpoint)):
        assert main(["group", "offsets", "g", "--format", "json", "--endpoint", endpoint]) == 1
        shown = capsys.readouterr()
        assert [(row["broker_name"], row["lag"]) for row in json.loads(shown.out)] == [("broker-a", 8)]
        assert f"left out: SERVICE_NOT_AVAILABLE: {'broker ' * (away == 'broker-b')}{away}" in shown.err


def test_a_group_that_a_broker_lacks_is_made_there(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.brokers["broker-a"].client() as client:
        client.put_group("half")
    create = ("group", "create", "half", "--endpoint", cluster.endpoint)
    assert main([*create]) == 0
    with cluster.brokers["broker-b"].client() as client:
        assert client.group("half").group == "half"
    assert main([*create]) != 0
    assert "group half exists" in capsys.readouterr().err
