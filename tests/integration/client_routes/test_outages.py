"""Clients of several brokers while one of them, or a name server, is away.

Contract: a broker that dies is named, and the rest go on; a master that dies is read from its slave, and is
not used any more once another was promoted; a call lasts no longer than it was given, whoever hangs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemq import Producer
from lakemq.cli.app import main
from lakemq.client import (
    Client,
    OutcomeUnknown,
    Unavailable,
)
from lakemq.client.routes import ASK_TIMEOUT_S
from tests.support.name_servers import BrokersOfCluster
from tests.support.routed import confirmed, made, sends
from tests.support.waiting import wait_until


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
            wait_until(lambda: confirmed(slave, "t") == 1)
            master.kill()
            assert broker.queues("t")[0].from_slave
            assert [m.body for m in broker.pull("t", 0, 0).messages] == [b"one"]
            with pytest.raises(Unavailable, match="broker broker-a"):
                client.send("t", "two")
            with slave.client() as promoted:
                promoted.promote()
            wait_until(lambda: sends(client, "t"))
            assert [m.body for m in broker.pull("t", 0, 0).messages] == [b"one", b"three"]


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_send_under_way_reaches_the_slave_that_is_promoted_meanwhile(
    tmp_path: Path, fate: signal.Signals
) -> None:
    with BrokersOfCluster(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        master, slave = cluster.master("broker-a"), cluster.slave("broker-a")
        with Producer(cluster.endpoint, "t", timeout_s=3, retry_until=300) as producer:
            producer.send("before", queue_id=0)
            wait_until(lambda: confirmed(slave, "t") == 1)
            os.kill(master.pid, fate)
            under_way = [
                pool.submit(producer.send, "plain", queue_id=0),
                pool.submit(producer.send, "keyed", sharding_key="k"),
                producer.send_later("later", sharding_key="k"),
            ]
            with slave.client() as promoted:
                promoted.promote()
            sent = [future.result(60) for future in under_way]
            assert [result.status for result in sent] == ["SEND_OK"] * 3
            assert not any(result.repeated_elsewhere for result in sent), "it is the same broker's name"
            with slave.client() as client:
                held = [message for queue in client.queues("t") for message in bodies(client, queue.queue_id)]
            assert sorted(held) == [b"before", b"keyed", b"later", b"plain"]


def bodies(client: Client, queue_id: int) -> list[bytes]:
    return [message.body for message in client.pull("t", queue_id, 0).messages]


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


def test_a_call_lasts_no_longer_than_it_was_given_though_a_name_server_hangs(
    cluster: BrokersOfCluster, client: Client, asked: Counter[int]
) -> None:
    topic = made(cluster, client, "hangs")
    with socket.create_server(("0.0.0.0", 0)) as listener:  # accepts, and never answers
        port = listener.getsockname()[1]
        hanging, *_ = many = [f"http://127.0.0.{number}:{port}" for number in range(1, 9)]

        def took(call: Any) -> float:
            began = time.monotonic()
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                call()
            return time.monotonic() - began

        with Client([hanging, cluster.name_servers[0].url], timeout_s=30) as beside:
            assert beside.send(topic, "x").status == "SEND_OK"
            assert asked[port] == 1
            assert beside.send(topic, "y").status == "SEND_OK"
            assert asked[port] == 1, "it is not asked again"
        for call in (
            lambda one: one.send(topic, "x", idempotency_key="k"),
            lambda one: one.topics(),
            lambda one: one.topic(topic),
            lambda one: one.put_topic(topic),
            lambda one: one.queues(topic, broker_name="broker-a"),
            lambda one: one.brokers(),
            lambda one: one.broker("broker-a").queues(topic),
        ):
            with Client(many, timeout_s=1) as alone:
                assert took(lambda call=call, alone=alone: call(alone)) < len(many) * ASK_TIMEOUT_S / 2


def test_a_master_that_hung_and_comes_back_takes_nothing_once_it_hears_of_the_new_one(
    tmp_path: Path,
) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master, slave = cluster.master("broker-a"), cluster.slave("broker-a")
        with Client(cluster.endpoint, timeout_s=5) as client:
            client.send("t", "one", queue_id=0)
            wait_until(lambda: confirmed(slave, "t") == 1)
            os.kill(master.pid, signal.SIGSTOP)
            with slave.client() as promoted:
                promoted.promote()
            wait_until(lambda: cluster.name_servers[0].addresses()["broker-a"]["0"] == slave.endpoint)
            os.kill(master.pid, signal.SIGCONT)
            with master.client() as old:
                wait_until(lambda: old.replication()["role"] == "slave")
                with pytest.raises(Unavailable, match="NOT_MASTER"):
                    old.send("t", "to the old one")
            assert "master no more: restart it as a slave" in master.log()
            # This client did not look at the routes since.
            wait_until(lambda: sends(client, "t"))
            assert "one" in {message.text for message in client.pull("t", 0, 0).messages}


def test_an_old_master_gets_nothing_while_the_promoted_slave_hangs(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a")
        slave = cluster.slave("broker-a")
        with Client([master.endpoint, slave.endpoint], timeout_s=5) as client:
            client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
            client.send("t", "one")
            wait_until(lambda: confirmed(slave, "t") == 1)
            master.kill()
            with slave.client() as promoted:
                promoted.promote()
            wait_until(lambda: sends(client, "t"))
            master.start()
            os.kill(slave.pid, signal.SIGSTOP)
            try:
                for number in range(2):
                    with pytest.raises((Unavailable, OutcomeUnknown)):
                        client.send("t", str(number), idempotency_key=str(number))
            finally:
                os.kill(slave.pid, signal.SIGCONT)
            assert confirmed(master, "t") == 1, "nothing but what it had"
            wait_until(lambda: sends(client, "t"))
