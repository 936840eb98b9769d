"""Which brokers a client finds behind a list of endpoints, against real name servers and brokers.

Contract: whoever has the list finds every broker; a topic is made on every master; a name that is nobody's,
or two brokers', is refused by name; one broker's address costs no further request.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakemq.client import (
    Client,
    InvalidRequest,
    Unavailable,
)
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster
from tests.support.routed import made
from tests.support.waiting import wait_until


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


def test_one_name_server_is_found_out_and_one_broker_costs_nothing_besides(
    cluster: BrokersOfCluster, client: Client, requests: list[str]
) -> None:
    topic = made(cluster, client, "found-out")
    with Client(cluster.name_servers[0].url) as by_name_server:
        assert by_name_server.send(topic, "1").status == "SEND_OK"
        assert set(by_name_server.brokers()) == {"broker-a", "broker-b"}
    with Client(cluster.name_servers[0].url) as by_name_server:
        assert len(by_name_server.cluster()["delay_levels_ms"]) == 18, "a broker's, also of the first call"
    with cluster.brokers["broker-a"].client() as one:
        requests.clear()
        assert one.send(topic, "2").broker_name == "broker-a"
        assert one.pull(topic, 0, 0).status in ("FOUND", "NO_NEW_MSG")
        assert len(requests) == 2
        assert set(one.brokers()) == {"broker-a"}


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
    with Client(cluster.endpoint, timeout_s=60) as patient:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="'nonsense'; those that are: broker-a, broker-b"):
            patient.queues(topic, broker_name="nonsense")
        with pytest.raises(Unavailable, match="'nonsense'; those that are: broker-a, broker-b"):
            patient.broker("nonsense").pull(topic, 0, 0)
        with pytest.raises(InvalidRequest, match="is broker broker-a"):
            patient.broker("broker-a").queues(topic, broker_name="broker-b")
        assert time.monotonic() - began < 30, "nobody is waited for"


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
