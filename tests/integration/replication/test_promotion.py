"""Brokers of one name: a slave becomes the master, and does not where that would lose messages."""

from __future__ import annotations

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemq import Message
from lakemq.cli import app
from lakemq.client import LakeMQError
from tests.support.replicated_brokers import SECRET, Cluster, bodies, post, status, wait_following
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until


def test_promoted_slave_goes_on_and_the_old_master_comes_back_as_its_slave(cluster: Cluster) -> None:
    master = cluster.master()
    slave = cluster.slave(master)
    wait_following(master)
    for number in range(10):
        assert post(master, f"first {number}")["status"] == "SEND_OK"
    with master.client() as client:
        client.commit_offsets("g", {("t", 0): 2})
    master.kill()
    with slave.client() as client:
        promoted = client.promote("async-master")
        assert (promoted["epoch"], promoted["role"], promoted["lacks_bytes"]) == (65, "async-master", 0)
        with pytest.raises(LakeMQError, match="not a slave"):
            client.promote()
    for number in range(10):
        assert post(slave, f"second {number}")["status"] == "SEND_OK"
    with slave.client() as client:
        assert client.group_offsets("g")[("t", 0)] == 2
    expected = sorted([f"{part} {number}" for part in ("first", "second") for number in range(10)])
    assert sorted(bodies(slave)) == expected
    returned = cluster.slave(slave, broker_id=2, name="m")
    wait_following(slave)
    wait_until(lambda: sorted(bodies(returned)) == expected, otherwise="the old master follows")
    assert status(returned)["epochs"] == status(slave)["epochs"]


def test_of_promotions_at_once_one_is_done_and_the_new_master_takes_slaves(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    post(master, "the slave has heard of its master")
    wait_until(lambda: len(bodies(slave)) == 1, otherwise="the slave follows")
    master.kill()

    def promote(_: int) -> str:
        try:
            with slave.client() as client:
                return str(client.promote("async-master")["epoch"])
        except LakeMQError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(promote, range(4))) == ["65", *["ARGUMENT_ILLEGAL"] * 3]
    assert (status(slave)["epoch"], status(slave)["failure"]) == (65, None)
    returned = cluster.slave(slave, broker_id=2, name="m")
    wait_following(slave)
    assert status(returned)["epoch"] == 65
    assert post(slave, "goes on")["status"] == "SEND_OK"


def test_an_empty_slave_that_never_followed_is_promoted_by_force_only(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master("async-master")
    post(master, "the slave does not get it")
    master.kill()
    slave = cluster.slave(master)
    with slave.client() as client:
        with pytest.raises(LakeMQError, match=r"empty and has not followed.*--force") as refused:
            client.promote("async-master")
        assert refused.value.code == "ARGUMENT_ILLEGAL"
        assert status(slave)["role"] == "slave"
    arguments = ["ha", "promote", "--endpoint", slave.endpoint, "--yes"]
    assert app.main(arguments) == 1
    capsys.readouterr()
    assert app.main([*arguments, "--force"]) == 0
    assert "its log ends at 0; it has heard of no master since its start" in capsys.readouterr().out
    assert status(slave)["epoch"] == 65


def test_a_promotion_says_how_far_its_masters_log_went_when_it_was_heard_last(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    with TcpProxy(status(master)["ha_port"]) as proxy:
        follows = ("--role", "slave", "--broker-id", "1", "--master", f"ha://127.0.0.1:{proxy.port}")
        slave = cluster.start("s", follows)
        wait_following(master)
        post(master, "both have it")
        wait_until(lambda: bodies(slave) == ["both have it"], otherwise="the slave has it")
        proxy.hold("to client", "to server")
        assert post(master, "only the master has it")["status"] == "SEND_OK"
        end = status(master)["appended"]
        master.kill()
        with slave.client() as client:
            promoted = client.promote("async-master")
    assert promoted["begins_at"] == promoted["master_end"] < end
    assert promoted["lacks_bytes"] == 0, "of what the slave heard of"
    assert promoted["silent_s"] > 0, "what the master took in that time is not known"


def test_a_slave_in_the_middle_of_its_catch_up_is_promoted_by_force_only(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {**SECRET, "LAKEMQ_REPLICATION_CATCH_UP_MIB_PER_S": "1"}
    master = cluster.master("async-master", environment=slow)
    with master.client() as client:
        for _ in range(25):  # a request goes as a whole, however long it is
            client.send_many("t", [Message(b"x" * 500_000) for _ in range(4)])
    slave = cluster.slave(master)
    wait_until(lambda: status(slave)["appended"] > 0, otherwise="it has begun")
    master.kill()
    with slave.client() as client, pytest.raises(LakeMQError, match=r"lacks \d{7,} bytes.*--force"):
        client.promote("async-master")
    assert status(slave)["role"] == "slave"
    capsys.readouterr()
    promote = ["ha", "promote", "--endpoint", slave.endpoint, "--yes", "--force"]
    assert app.main([*promote, "--format", "json"]) == 0
    promoted = json.loads(capsys.readouterr().out)
    assert promoted["lacks_bytes"] == promoted["master_end"] - promoted["begins_at"] > 1_000_000
    assert promoted["silent_s"] >= 0


def test_a_slave_is_not_promoted_beside_a_master_that_answers_without_force(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    post(master, "before")
    wait_until(lambda: bodies(slave) == ["before"], otherwise="the slave has it")
    promote = ["ha", "promote", "--endpoint", slave.endpoint, "--yes"]
    assert app.main(promote) == 1
    said = capsys.readouterr().err
    assert f"its master {master.endpoint} answers and takes messages" in said
    assert "--force" in said
    wait_following(master)
    assert status(slave)["role"] == "slave", "it follows as before"
    assert post(master, "after")["status"] == "SEND_OK"
    wait_until(lambda: sorted(bodies(slave)) == ["after", "before"], otherwise="it follows as before")
    assert app.main([*promote, "--force"]) == 0
    assert status(slave)["role"] == "async-master"


@pytest.mark.parametrize("master_is", ["killed", "stopped"])
def test_a_slave_whose_master_does_not_answer_is_promoted_and_takes_messages(
    cluster: Cluster, master_is: str
) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    post(master, "before")
    wait_until(lambda: bodies(slave) == ["before"], otherwise="the slave has it")
    if master_is == "killed":
        master.kill()
    else:
        os.kill(master.pid, signal.SIGSTOP)
    try:
        with slave.client() as client:
            client.promote("async-master")
            assert post(slave, "after")["status"] == "SEND_OK"
    finally:
        if master_is == "stopped":
            os.kill(master.pid, signal.SIGCONT)


def test_promotion_that_cannot_be_served_changes_nothing(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    taken = socket.create_server(("127.0.0.1", 0))
    arguments = ("--role", "slave", "--broker-id", "1", "--master", master.endpoint)
    port = str(taken.getsockname()[1])
    slave = cluster.start("s", (*arguments, "--ha-port", port))
    without = cluster.start("t", (*arguments[:3], "2", *arguments[4:]))
    wait_following(master, 2)
    with taken, slave.client() as client, pytest.raises(LakeMQError, match=f"port {port}"):
        client.promote(force=True)
    with without.client() as client, pytest.raises(LakeMQError, match="--ha-port"):
        client.promote("sync-master")
    for broker in (slave, without):
        assert status(broker)["role"] == "slave"
    wait_following(master, 2)
