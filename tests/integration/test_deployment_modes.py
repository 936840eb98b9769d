"""What each way to deploy brokers promises when a master dies: RocketMQ's four, found by a name server.

Contract: one master: nothing goes until it is back, and it comes back with everything. Masters with
asynchronous slaves: the other masters go on, the dead one's messages are read from its slave, and what the
slave had not received is lost when it is promoted: the new epoch says from where on, and the old master is
refused, with its store kept. Masters with synchronous slaves: nothing that was acknowledged is lost, and the
old master comes back as a slave. Several masters without slaves are in client_routes/test_outages.py
(test_a_broker_that_dies_is_named_and_the_rest_go_on).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemq.cli.app import main
from lakemq.client import Client, Unavailable
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster
from tests.support.plain_log import read_log
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
TOPIC = "t"
NAMES = ("broker-a", "broker-b")


def prepared(cluster: BrokersOfCluster, client: Client, *names: str) -> None:
    client.put_topic(TOPIC, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(TOPIC, *names)


def sent(client: Client, name: str, *bodies: str) -> list[str]:
    """Sends to one broker, each to be answered SEND_OK; returns the bodies."""
    broker = client.broker(name)
    assert {broker.send(TOPIC, body).status for body in bodies} == {"SEND_OK"}
    return list(bodies)


def found(client: Client) -> list[str]:
    return sorted(m.text for queue in range(2) for m in client.pull(TOPIC, queue, 0, max=100).messages)


def refusal(client: Client) -> str:
    """Returns why nobody says which queues the topic has."""
    with pytest.raises(Unavailable) as refused:
        client.queues(TOPIC)
    return str(refused.value)


def go_on_at(client: Client, name: str, *keys: str) -> list[str]:
    """Sends to whichever broker takes it; all have to go to this one, and not to be in doubt."""
    results = [client.send(TOPIC, key, idempotency_key=key) for key in keys]
    assert {(result.broker_name, result.status) for result in results} == {(name, "SEND_OK")}
    assert not any(result.repeated_elsewhere for result in results)
    return list(keys)


def status(broker: BrokerProcess) -> dict[str, Any]:
    with broker.client() as client:
        return client.replication()


def test_one_master_is_away_as_a_whole_and_comes_back_with_everything(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a")
        with Client(cluster.endpoint, timeout_s=5) as client:
            prepared(cluster, client, "broker-a")
            bodies = sent(client, "broker-a", "1", "2", "3")
            client.put_group("g")
            client.commit_offsets("g", {(TOPIC, 0): 1}, broker_name="broker-a")
            master.kill()
            with pytest.raises(Unavailable, match="broker broker-a"):
                client.send(TOPIC, "4")
            with pytest.raises(Unavailable, match="broker broker-a"):
                client.pull(TOPIC, 0, 0)
            master.start()
            wait_until(lambda: "broker-a" in cluster.name_servers[0].addresses())
            broker = client.broker("broker-a")
            assert found(broker) == bodies
            assert client.group_offsets("g", broker_name="broker-a") == {(TOPIC, 0): 1}
            sent(client, "broker-a", "4")


def test_of_masters_with_asynchronous_slaves_one_that_dies_loses_what_its_slave_had_not_received(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        masters = {name: cluster.master(name, "--role", "async-master") for name in NAMES}
        slaves = {name: cluster.slave(name) for name in NAMES}
        with Client(cluster.endpoint, timeout_s=5) as client:
            prepared(cluster, client, *NAMES)
            kept = sent(client, "broker-a", "a1", "a2", "a3")
            others = sent(client, "broker-b", "b1")
            end = status(masters["broker-a"])["appended"]
            wait_until(lambda: status(slaves["broker-a"])["confirmed"] == end)
            slaves["broker-a"].kill()
            sent(client, "broker-a", "not replicated")
            before = status(masters["broker-a"])
            masters["broker-a"].kill()
            slaves["broker-a"].start()
            wait_until(lambda: "1" in cluster.name_servers[0].addresses().get("broker-a", {}))

            others += go_on_at(client, "broker-b", "k1", "k2", "k3")
            a = client.broker("broker-a")
            assert all(queue.from_slave for queue in a.queues(TOPIC))
            assert found(a) == kept

            with slaves["broker-a"].client() as promoted:
                promoted.promote("async-master", force=True)
            wait_until(lambda: "0" in cluster.name_servers[0].addresses()["broker-a"])
            after = status(slaves["broker-a"])
            assert after["epoch"] > before["epoch"]
            assert after["epochs"][-1] == {"epoch": after["epoch"], "start_offset": end}
            assert end < before["appended"], "the new epoch begins before the end of the old master's log"
            wait_until(lambda: not any(queue.from_slave for queue in a.queues(TOPIC)))
            kept += sent(client, "broker-a", "a4")
            assert found(a) == sorted(kept)
            assert found(client.broker("broker-b")) == sorted(others)

            # What it had alone is for a person to look at: it neither comes back nor is deleted.
            returned = cluster.returned("broker-a", slaves["broker-a"], follows=False)
            wait_until(lambda: "the log cannot be cut" in str(status(returned)["failure"]))
            assert not status(slaves["broker-a"])["slaves"]
            # Nor does it stand in for the new master, whose messages it does not have.
            server = cluster.name_servers[0]
            wait_until(lambda: "2" in server.addresses()["broker-a"], otherwise="ha status shows it")
            wait_until(lambda: "2" not in server.route(TOPIC)["broker-a"], otherwise="no route has it")
            slaves["broker-a"].kill()
            for _ in range(2):
                # A name server may have to hear of it again: till then it is not read either.
                wait_until(lambda: "whose log parted from its master's" in refusal(a))
                returned.kill()
                returned.start()  # it knows it without a master, too
            with returned.client() as by_its_address:
                assert "not replicated" in found(by_its_address)
            assert main(["ha", "status", "--endpoint", returned.endpoint]) == 0
            shown = capsys.readouterr().out.splitlines()[0]
            assert "NOT READ IN ITS MASTER'S PLACE: its log parted" in shown
            returned.stop()
            assert "not replicated" in [r.body.decode() for r in read_log(returned.store_path).records]


def test_of_masters_with_synchronous_slaves_one_that_dies_loses_nothing(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        masters = {name: cluster.master(name, "--role", "sync-master") for name in NAMES}
        slaves = {name: cluster.slave(name) for name in NAMES}
        with Client(cluster.endpoint, timeout_s=5) as client:
            prepared(cluster, client, *NAMES)
            kept = sent(client, "broker-a", *(f"a{number}" for number in range(20)))
            others = sent(client, "broker-b", "b1")
            client.put_group("g")
            client.commit_offsets("g", {(TOPIC, 0): 7}, broker_name="broker-a")
            masters["broker-a"].kill()

            others += go_on_at(client, "broker-b", "k1", "k2", "k3")
            a = client.broker("broker-a")
            assert all(queue.from_slave for queue in a.queues(TOPIC))

            with slaves["broker-a"].client() as promoted:
                promoted.promote("sync-master")
            returned = cluster.returned("broker-a", slaves["broker-a"])
            wait_until(lambda: not any(queue.from_slave for queue in a.queues(TOPIC)))
            kept += sent(client, "broker-a", "behind")
            assert found(a) == sorted(kept)
            assert client.group_offsets("g", broker_name="broker-a") == {(TOPIC, 0): 7}
            assert found(client.broker("broker-b")) == sorted(others)
            assert status(returned)["epochs"] == status(slaves["broker-a"])["epochs"]
            wait_until(lambda: _shows(returned, kept))


def _shows(broker: BrokerProcess, bodies: list[str]) -> bool:
    with broker.client() as client:
        return found(client) == sorted(bodies)
