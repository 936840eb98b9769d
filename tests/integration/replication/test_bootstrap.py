"""A slave without a store gets its master's."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from lakemq import broker_process
from store_native import Store
from tests.support.broker_process import BrokerProcess
from tests.support.replicated_brokers import SECRET, Cluster, bodies, post, status, wait_following
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

SMALL_LOG_FILES = {
    **SECRET,
    "LAKEMQ_STORE_COMMITLOG_FILE_SIZE": str(256 << 10),
    "LAKEMQ_LIMITS_MAX_MESSAGE_BYTES": str(64 << 10),
}


def with_expired_files(cluster: Cluster) -> BrokerProcess:
    """A master whose first log files have expired, what was committed and made in them included."""
    master = cluster.master("async-master", environment=SMALL_LOG_FILES)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=4, write_queue_nums=4)
        client.put_topic("empty", read_queue_nums=2, write_queue_nums=2)
        client.send("t", b"one", queue_id=0)
        client.send("t", b"two", queue_id=0)
        client.commit_offsets("g", {("t", 0): 2})
        for part in range(12):
            lines = [b'{"body":"%d %d %s"}\n' % (part, at, b"x" * 1000) for at in range(100)]
            client.send_ndjson("t", b"".join(lines))
        client.send("t", b"with a key", keys=["the-key"])
    master.stop()
    store = Store(str(master.store_path))
    assert store.expire(int(time.time() * 1000) + 100 * 3_600_000) > 0
    store.close()
    master.start()
    assert status(master)["first_offset"] > 0
    return master


@pytest.mark.parametrize("begun", [False, True], ids=["empty", "begun before"])
def test_a_slave_without_a_store_gets_its_masters_when_the_first_files_have_expired(
    cluster: Cluster, tmp_path: Path, begun: bool
) -> None:
    master = with_expired_files(cluster)
    if begun:  # as one leaves it that was killed in the middle
        log = tmp_path / "s1" / "store" / "commitlog"
        log.mkdir(parents=True)
        (log / f"{status(master)['first_offset']:020}").write_bytes(b"half of a file")
        (tmp_path / "s1" / "store" / "lakemq").mkdir()
        (tmp_path / "s1" / "store" / "lakemq" / "bootstrap").touch()
    slave = cluster.slave(master, environment=SMALL_LOG_FILES)
    wait_following(master)
    post(master, "the next")
    expected = held(master)
    assert len(expected) > 100
    wait_until(lambda: held(slave) == expected, otherwise="the slave has what its master has")
    with slave.client() as client:
        assert client.group_offsets("g") == {("t", 0): 2}
        assert {"t", "empty"} <= {config.topic for config in client.topics()}
        assert [message.body for message in client.query("t", "the-key")] == [b"with a key"]
    assert status(slave)["epochs"] == status(master)["epochs"]
    master.kill()
    with slave.client() as client:
        client.promote()
    before = expected[-1]
    post(slave, "behind")
    assert len(held(slave)) == len(expected) + 1
    assert before in held(slave)
    slave.restart()
    assert status(slave)["role"] == "slave", "by its arguments"
    assert len(held(slave)) >= len(expected)


def test_a_slave_whose_bootstrap_is_not_needed_any_more_gives_its_marker_back_and_follows(
    cluster: Cluster, tmp_path: Path
) -> None:
    master = cluster.master("async-master")
    post(master, "from the beginning")
    marker = tmp_path / "s1" / "store" / "lakemq" / "bootstrap"
    marker.parent.mkdir(parents=True)
    marker.touch()
    slave = cluster.slave(master)
    assert not marker.exists()
    wait_until(lambda: bodies(slave) == ["from the beginning"], otherwise="it follows from 0")


def held(broker: BrokerProcess) -> list[tuple[int, int, str]]:
    """Returns (queue, offset, beginning of the body) of all messages."""
    with broker.client() as client:
        found = []
        for queue in range(4):
            offset = client.queues("t")[queue].min_offset
            while messages := client.pull("t", queue, offset, max=1000).messages:
                found += [(queue, m.queue_offset, m.body[:20].decode()) for m in messages]
                offset = messages[-1].queue_offset + 1
        return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_slave_that_is_stopped_while_it_makes_its_store_ends_cleanly(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    master = with_expired_files(cluster)
    with TcpProxy(status(master)["ha_port"]) as proxy:
        proxy.hold("to client")
        log_path = tmp_path / "slave.log"
        arguments = f"--broker-name broker-a --role slave --broker-id 1 --master ha://127.0.0.1:{proxy.port}"
        slave = broker_process.BrokerProcess(
            ["--store", str(tmp_path / "s"), "--port", "0", *arguments.split()],
            log_path,
            environment=SMALL_LOG_FILES,
        )
        try:
            wait_until(lambda: proxy.connected > 0, otherwise=log_path.read_text)
            slave.send_signal(number)
            slave.wait(broker_process.STOP_TIMEOUT_S)
        finally:
            code = slave.close()
    assert code == (0 if number == signal.SIGTERM else 130), log_path.read_text()
    assert "Traceback" not in log_path.read_text()
