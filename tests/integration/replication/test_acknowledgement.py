"""Brokers of one name: what is acknowledged is on a slave, and a slave takes nothing itself."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from lakemq.client import Client, Unavailable
from tests.support.replicated_brokers import Cluster, bodies, post, status, wait_following
from tests.support.waiting import wait_until


def test_sync_master_acknowledges_what_a_slave_has(cluster: Cluster) -> None:
    master = cluster.master()
    assert post(master, "alone")["status"] == "SLAVE_NOT_AVAILABLE"
    assert bodies(master) == [], "nobody reads what no slave has"
    slave = cluster.slave(master)
    wait_following(master)
    wait_until(lambda: bodies(master) == ["alone"], otherwise="it counts when a slave has it")
    for number in range(20):
        assert post(master, f"message {number}")["status"] == "SEND_OK"
    expected = sorted(["alone", *(f"message {number}" for number in range(20))])
    assert sorted(bodies(master)) == expected
    wait_until(lambda: sorted(bodies(slave)) == expected, otherwise="the slave shows it")
    slave.kill()
    wait_until(
        lambda: post(master, "nobody takes it")["status"] == "SLAVE_NOT_AVAILABLE",
        otherwise="the slave is gone",
    )
    assert sorted(bodies(master)) == expected


def test_sync_master_that_flushes_from_time_to_time_answers_when_a_slave_has_it(cluster: Cluster) -> None:
    seldom: dict[str, Any] = {"flush": "async", "store": "flush_interval_ms = 60000\n"}
    master = cluster.master(**seldom)
    cluster.slave(master, **seldom)
    wait_following(master)
    for number in range(5):
        assert post(master, f"message {number}")["status"] == "SEND_OK"


def test_change_that_no_slave_has_says_so(cluster: Cluster) -> None:
    master = cluster.master()
    request = urllib.request.Request(f"{master.endpoint}/api/v1/topics/made", b"{}", method="PUT")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert (answer.status, json.load(answer)) == (202, {"status": "SLAVE_NOT_AVAILABLE"})
        assert answer.headers["X-LakeMQ-Status"] == "SLAVE_NOT_AVAILABLE"
    with master.client() as client:
        for change in (client.put_topic, client.put_group):
            with pytest.raises(Unavailable, match=f"{master.endpoint} has stored the change") as pending:
                change("another")
            assert pending.value.code == "SLAVE_NOT_AVAILABLE"


def test_slave_refuses_messages_and_names_its_master(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    with (
        Client(slave.endpoint, retries=0) as client,
        pytest.raises(Unavailable, match=master.endpoint) as refused,
    ):
        client.send("t", b"x")
    assert refused.value.code == "NOT_MASTER"


def test_slave_refuses_changes_and_names_its_master(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    with master.client() as client:
        client.put_topic("t")
        client.put_group("g")
    with Client(slave.endpoint, retries=0) as client:
        wait_until(lambda: [group.group for group in client.groups()] == ["g"])
        changes: dict[str, Callable[[], object]] = {
            "make a topic": lambda: client.put_topic("another"),
            "delete a topic": lambda: client.delete_topic("t"),
            "delete a topic that the slave may not have yet": lambda: client.delete_topic("another"),
            "make a group": lambda: client.put_group("another"),
            "delete a group": lambda: client.delete_group("g"),
            "commit offsets": lambda: client.commit_offsets("g", {("t", 0): 0}),
            "commit offsets with a lease": lambda: client.commit_offsets("g", {("t", 0): 0}, lease_epoch=1),
            "reset offsets": lambda: client.reset_offsets("g", "t", to="earliest"),
            "take a lease": lambda: client.acquire_lease("g", "me", 1_000),
        }
        for what, change in changes.items():
            with pytest.raises(Unavailable, match=f"its master is {master.endpoint}") as refused:
                change()
            assert refused.value.code == "NOT_MASTER", what
            assert refused.value.context["master"] == master.endpoint, what
        assert client.reset_offsets("g", "t", to="earliest", dry_run=True)


@pytest.mark.parametrize(
    "said",
    [(1 << 40).to_bytes(8, "big"), b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"LMHA" + b"\xff" * 200],
    ids=["a RocketMQ slave's report", "HTTP", "zeros", "a header of nonsense"],
)
def test_stray_bytes_on_the_port_acknowledge_nothing(cluster: Cluster, said: bytes) -> None:
    master = cluster.master()
    port = status(master)["ha_port"]
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(said)
        connection.settimeout(10)
        assert connection.recv(1000) == b"", "it is closed without a word"
        assert post(master, "x")["status"] == "SLAVE_NOT_AVAILABLE"


def test_slave_without_the_secret_is_none(cluster: Cluster) -> None:
    master = cluster.master()
    slave = cluster.slave(master, environment={"LAKEMQ_CLUSTER_SECRET": "another secret than that"})
    wait_until(lambda: "NO_PERMISSION" in str(status(slave)["failure"]), otherwise="the slave is told")
    assert post(master, "x")["status"] == "SLAVE_NOT_AVAILABLE"
    assert status(slave)["appended"] == 0
