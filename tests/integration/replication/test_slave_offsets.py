"""The offsets of groups at a slave: shown, committed while the master is away, kept."""

from __future__ import annotations

import json

import pytest

from lakemq import Message
from lakemq.cli import app
from lakemq.client import Client, LakeMQError, Unavailable
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http, Reply
from tests.support.replicated_brokers import Cluster, post, status, there, wait_following
from tests.support.waiting import wait_until


def test_a_groups_offsets_at_a_slave_say_that_they_may_be_behind(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master()
    slave = cluster.slave(master)
    wait_following(master)
    post(master, "x")
    with master.client() as client:
        client.commit_offsets("g", {("t", 0): 0})
    wait_until(lambda: bool(offsets_of(slave).json.get("offsets")), otherwise="the slave has them")

    def says_so(broker: BrokerProcess) -> bool:
        return offsets_of(broker).headers.get("x-lakemq-may-be-behind") == "true"

    assert (says_so(master), says_so(slave)) == (False, True)
    show = ["group", "offsets", "g", "--endpoint"]
    assert app.main([*show, master.endpoint]) == 0
    assert capsys.readouterr().err == ""
    assert app.main([*show, slave.endpoint]) == 0
    assert "these offsets may be behind" in capsys.readouterr().err


def offsets_of(broker: BrokerProcess) -> Reply:
    return Http(broker.endpoint).get("/groups/g/offsets")


def test_offsets_committed_at_a_slave_reach_its_master_when_it_is_back(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=3, write_queue_nums=3)
        for queue_id in range(3):
            client.send_many("t", [Message(b"x", queue_id=queue_id) for _ in range(9)])
        client.put_group("readers")
        client.commit_offsets("readers", {("t", 0): 4, ("t", 1): 4})
    both = [master.endpoint, slave.endpoint]
    with Client(both, retries=0) as client, Client(slave.endpoint, retries=0) as at_slave:
        wait_until(lambda: there(lambda: at_slave.group_offsets("readers")) == {("t", 0): 4, ("t", 1): 4})
        with pytest.raises(Unavailable) as refused:
            at_slave.commit_offsets("readers", {("t", 0): 5})
        assert refused.value.code == "NOT_MASTER"
        assert client.brokers().keys() == {"broker-a"}
        master.kill()
        wait_until(lambda: not status(slave)["following"])
        ahead = {("t", 0): 7, ("t", 1): 6, ("t", 2): 2}
        assert client.commit_offsets("readers", ahead, broker_name="broker-a").is_kept_aside
        assert app.main(["group", "offsets", "readers", "--endpoint", ",".join(both)]) == 1, (
            "one did not answer"
        )
        assert "broker broker-a: these offsets may be behind: they are a slave's" in capsys.readouterr().err
        client.commit_offsets("readers", {("t", 1): 5}, broker_name="broker-a")  # the larger one stays
        kept = {("t", 0): 7, ("t", 1): 6, ("t", 2): 2}
        assert client.group_offsets("readers", broker_name="broker-a") == kept
        with pytest.raises(LakeMQError) as illegal:
            at_slave.commit_offsets("readers", {("t", 0): 10})
        assert illegal.value.code == "OFFSET_ILLEGAL"
    # It outlives the slave too, and does not undo what was done at the master before the slave was back.
    slave.kill()
    master.start()
    with master.client() as client:
        assert client.commit_offsets("readers", {("t", 0): 8}).status == "COMMIT_OK"
        client.reset_offsets("readers", "t", offsets={1: 0})
        slave.start()
        wait_until(lambda: client.group_offsets("readers").get(("t", 2)) == 2)
        assert client.group_offsets("readers") == {("t", 0): 8, ("t", 1): 0, ("t", 2): 2}
    with slave.client() as at_slave:
        wait_until(lambda: at_slave.group_offsets("readers") == {("t", 0): 8, ("t", 1): 0, ("t", 2): 2})


def test_offsets_committed_at_a_slave_are_its_own_when_it_is_promoted(cluster: Cluster) -> None:
    master = cluster.master("async-master")
    slave = cluster.slave(master)
    wait_following(master)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        client.send_many("t", [Message(b"x") for _ in range(9)])
        client.put_group("readers")
    with Client(slave.endpoint, retries=0) as at_slave:
        wait_until(lambda: there(lambda: at_slave.group("readers")) is not None)  # it came last
        master.kill()
        wait_until(lambda: not status(slave)["following"])
        at_slave.commit_offsets("readers", {("t", 0): 7})
        at_slave.promote("async-master")
        aside = slave.store_path / "lakemq" / "offsets-aside.json"
        wait_until(lambda: json.loads(aside.read_text())["groups"] == {})
        assert at_slave.group_offsets("readers") == {("t", 0): 7}
        at_slave.commit_offsets("readers", {("t", 0): 3})
        assert at_slave.group_offsets("readers") == {("t", 0): 3}
