"""RocketMQ's own broker and ours as master and slave of each other, over RocketMQ's replication port.

Contract: the logs are the same bytes. What a RocketMQ pair asks of its name server and by remoting is not
spoken: only the log goes over.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from store_native import Reader
from tests.support.broker_process import BrokerProcess
from tests.support.peer_brokers import RocketMQ
from tests.support.plain_log import read_log
from tests.support.waiting import wait_until

FILE_BYTES = 64 << 20  # as BrokerProcess has it
MESSAGES = 600
ROCKETMQ = ("--ha-protocol", "rocketmq")


def log_of(store: Path, end: int) -> bytes:
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    return b"".join(path.read_bytes() for path in files)[:end]


def appended(broker: BrokerProcess) -> int:
    with broker.client() as client:
        return int(client.replication()["appended"])


def test_lakemq_is_the_slave_of_a_rocketmq_master(tmp_path: Path) -> None:
    with RocketMQ(tmp_path / "rocketmq", commitlog_file_size=FILE_BYTES) as master:
        sent = master.tool("produce", topics="Moved", count=MESSAGES // 2, size=500)
        arguments = ("--role", "slave", "--broker-id", "1", *ROCKETMQ)
        slave = BrokerProcess(
            tmp_path / "lakemq", arguments=(*arguments, "--master", f"ha://127.0.0.1:{master.ha_port}")
        )
        try:
            sent += master.tool("produce", topics="Moved", count=MESSAGES // 2, first=MESSAGES, size=500)
            assert len(sent) == MESSAGES

            def dispatched() -> int:
                reader = Reader(slave.store_path)
                return sum(end for _, _, end, _ in reader.queues("Moved")) if reader.topics() else 0

            wait_until(lambda: dispatched() == MESSAGES, 60.0, lambda: slave.log()[-2000:])
            rows = master.tool("dump", topics="Moved", at_least=MESSAGES)
            moved = [record for record in read_log(slave.store_path).records if record.topic == "Moved"]
            assert sorted(record.body for record in moved) == sorted(
                base64.b64decode(row["body"]) for row in rows
            )
            end = appended(slave)
            assert log_of(slave.store_path, end) == log_of(master.store, end)
            assert slave.stop() == 0
        finally:
            slave.close()


@pytest.mark.nightly
def test_rocketmq_is_the_slave_of_a_lakemq_master(tmp_path: Path) -> None:
    arguments = ("--role", "async-master", "--ha-port", "0", *ROCKETMQ)
    master = BrokerProcess(tmp_path / "lakemq", arguments=arguments)
    try:
        with master.client() as client:
            for number in range(MESSAGES):
                client.send("Moved", f"message {number} {'x' * 400}".encode(), keys=[str(number)])
            port = client.replication()["ha_port"]
        settings: dict[str, str | int | bool] = {"brokerRole": "SLAVE", "brokerId": 1}
        slave = RocketMQ(tmp_path / "rocketmq", commitlog_file_size=FILE_BYTES, settings=settings)
        with slave.registered_master(port), slave:
            end = appended(master)
            wait_until(
                lambda: (
                    (slave.store / "commitlog").exists()
                    and log_of(slave.store, end) == log_of(master.store_path, end)
                ),
                60.0,
                lambda: master.log()[-2000:],
            )
            with master.client() as client:
                assert client.replication()["slaves"][0]["broker_id"] is None
                wait_until(lambda: client.replication()["slaves"][0]["acked"] == end)
                client.send("Moved", b"one more")
            end = appended(master)
            wait_until(lambda: log_of(slave.store, end) == log_of(master.store_path, end))
            queues = slave.store / "consumequeue" / "Moved"
            wait_until(lambda: queues.is_dir() and len(list(queues.iterdir())) == 4)
    finally:
        master.close()
