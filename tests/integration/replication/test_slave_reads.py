"""Readers that are far behind read from a slave, where the broker is told to send them there.

Contract: RocketMQ's rule. Nothing is read twice or left out on the way to the slave and back, whether the
slave answers or not; by default nobody is sent anywhere.
"""

from __future__ import annotations

import pytest

from lakemq import Message
from lakemq.client import Client
from tests.support.broker_process import BrokerProcess
from tests.support.replicated_brokers import NO_WAIT, Cluster, status, wait_following
from tests.support.waiting import wait_until

FAR = 4_000
SLAVE_READS = f"{NO_WAIT}[replication]\nslave_reads = true\nslave_reads_behind_bytes = {FAR}\n"
MESSAGES = 100


def filled(cluster: Cluster, config: str) -> tuple[BrokerProcess, BrokerProcess]:
    master = cluster.master(config=config)
    slave = cluster.slave(master, config=config)
    wait_following(master)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        client.send_many("t", [Message(f"{number:0100d}") for number in range(MESSAGES)])
        end = client.replication()["appended"]
    wait_until(lambda: status(slave)["confirmed"] == end, otherwise="the slave shows all")
    return master, slave


def read_all(client: Client, *, arrow: bool) -> tuple[list[int], list[bool]]:
    """The numbers of all messages, and of each pull whether a slave answered it."""
    numbers: list[int] = []
    by_slave: list[bool] = []
    offset = 0
    while True:
        if arrow:
            pulled = client.pull_arrow("t", 0, offset, max=10)
            found = [int(body) for body in pulled.batch.column("body").to_pylist()]
            offset, from_slave = pulled.next_offset, pulled.from_slave
        else:
            read = client.pull("t", 0, offset, max=10)
            found = [int(message.body) for message in read.messages]
            offset, from_slave = read.next_offset, read.from_slave
        if not found:
            return numbers, by_slave
        numbers += found
        by_slave.append(from_slave)


@pytest.mark.parametrize("arrow", [False, True], ids=["json", "arrow"])
def test_a_reader_far_behind_is_sent_to_the_slave_and_back(cluster: Cluster, arrow: bool) -> None:
    master, slave = filled(cluster, SLAVE_READS)
    with Client(f"{master.endpoint},{slave.endpoint}") as client:
        numbers, by_slave = read_all(client, arrow=arrow)
        assert numbers == list(range(MESSAGES))
        assert by_slave[0] is False, "the master says where to go on"
        assert by_slave[1:4] == [True] * 3
        assert by_slave[-1] is False, "what was just written is in the master's memory"
        assert client.pull("t", 0, 0, max=10).from_slave is False
        slave.kill()
        numbers, by_slave = read_all(client, arrow=arrow)
        assert (numbers, any(by_slave)) == (list(range(MESSAGES)), False)
    with Client(master.endpoint) as alone:
        assert read_all(alone, arrow=arrow)[0] == list(range(MESSAGES))


def test_by_default_nobody_is_sent_anywhere(cluster: Cluster) -> None:
    config = f"{NO_WAIT}[replication]\nslave_reads_behind_bytes = {FAR}\n"
    master, slave = filled(cluster, config)
    with Client(f"{master.endpoint},{slave.endpoint}") as client:
        assert read_all(client, arrow=False) == (list(range(MESSAGES)), [False] * 10)
