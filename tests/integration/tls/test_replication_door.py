"""Masters and slaves behind certificates, with real processes.

Contract: a slave follows over TLS and takes over; it follows no master it does not believe, and whoever
speaks the wrong way hears what is wrong.
"""

from __future__ import annotations

import socket
import time

import pytest

from lakemq import Message
from lakemq.client import Client
from lakemq.tls.files import TlsFiles
from store_native import Store
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.replicated_brokers import there
from tests.support.tls_cluster import Cluster, ha_port_of, status, wait_following
from tests.support.waiting import wait_until

LMHA = b"LMHA"
BYTES = 16 << 20


@pytest.mark.parametrize("door", ["api", "replication port"])
@pytest.mark.parametrize("wrong", ["authority", "host"])
@pytest.mark.usefixtures("believed")
def test_a_slave_follows_no_master_it_does_not_believe(
    cluster: Cluster,
    served: TlsFiles,
    elsewhere: TlsFiles,
    stranger: Authority,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
    wrong: str,
) -> None:
    master = cluster.master(elsewhere if wrong == "host" else served)
    port = ha_port_of(master)
    place = master.endpoint if door == "api" else f"ha://127.0.0.1:{port}"
    own = TlsFiles(served.cert, served.key, str(stranger.file) if wrong == "authority" else served.ca)
    slave = cluster.slave(place, own)
    wait_until(
        lambda: "certificate is not accepted" in str(status(slave)["failure"]),
        otherwise=lambda: status(slave),
    )
    assert status(slave)["appended"] == 0
    if wrong == "authority":
        with master.client() as client:
            assert client.send("t", b"x").status == "SLAVE_NOT_AVAILABLE"


@pytest.mark.usefixtures("believed")
def test_a_slave_that_speaks_plainly_to_a_master_behind_tls_is_told(
    cluster: Cluster, served: TlsFiles
) -> None:
    master = cluster.master(served)
    slave = cluster.slave(f"ha://127.0.0.1:{ha_port_of(master)}", None)
    wait_until(lambda: "this port speaks TLS" in str(status(slave)["failure"]), otherwise=slave.log)
    asking = cluster.slave(master.endpoint.replace("https", "http"), None, name="s2", broker_id=2)
    wait_until(lambda: "this port speaks TLS" in str(status(asking)["failure"]), otherwise=asking.log)
    with master.client() as client:
        assert client.send("t", b"x").status == "SLAVE_NOT_AVAILABLE"
    assert "it speaks plainly" in master.log()


@pytest.mark.usefixtures("believed")
def test_a_slave_that_speaks_tls_to_a_plain_master_is_told(cluster: Cluster, served: TlsFiles) -> None:
    master = cluster.master(None)
    slave = cluster.slave(f"ha://127.0.0.1:{ha_port_of(master)}", served)
    told = "closed the connection in the TLS handshake"
    wait_until(lambda: told in str(status(slave)["failure"]), otherwise=lambda: status(slave))
    asking = cluster.slave(master.endpoint.replace("http", "https"), served, name="s2", broker_id=2)
    wait_until(lambda: "speaks no TLS" in str(status(asking)["failure"]), otherwise=lambda: status(asking))
    with master.client() as client:
        assert client.send("t", b"x").status == "SLAVE_NOT_AVAILABLE"


@pytest.mark.usefixtures("believed")
def test_a_slave_follows_over_tls_and_takes_over(cluster: Cluster, served: TlsFiles) -> None:
    master = cluster.master(served)
    slave = cluster.slave(master.endpoint, served)
    wait_following(master)
    large = "x" * 2_000_000
    with master.client() as client:
        for number in range(10):
            assert client.send("t", f"first {number}").status == "SEND_OK"
        assert client.send("t", large).status == "SEND_OK"
    assert LMHA not in spoken_on(ha_port_of(master)), "the port says nothing plainly"
    master.kill()
    with slave.client() as client:
        assert client.promote("async-master")["epoch"] == 65
        for number in range(10):
            assert client.send("t", f"second {number}").status == "SEND_OK"
    expected = sorted([large, *(f"{part} {number}" for part in ("first", "second") for number in range(10))])
    assert bodies(slave) == expected
    returned = cluster.slave(slave.endpoint, served, name="m", broker_id=2)
    wait_following(slave)
    wait_until(lambda: bodies(returned) == expected, otherwise="the old master follows")
    assert status(returned)["epochs"] == status(slave)["epochs"]
    assert returned.stop() == 0
    assert slave.stop() == 0


def bodies(broker: BrokerProcess) -> list[str]:
    with broker.client() as client:
        pulls = [
            client.pull("t", queue.queue_id, 0, max=1000, max_bytes=BYTES) for queue in client.queues("t")
        ]
    return sorted(message.body.decode() for pull in pulls for message in pull.messages)


def spoken_on(port: int) -> bytes:
    """What the replication port says to who says nothing for a moment."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.settimeout(0.2)
        try:
            return connection.recv(100)
        except TimeoutError:
            return b""


@pytest.mark.usefixtures("believed")
def test_a_slave_without_a_store_gets_its_masters_over_tls(cluster: Cluster, served: TlsFiles) -> None:
    small = ("--store.commitlog_file_size", str(256 << 10), "--limits.max_message_bytes", str(64 << 10))
    master = cluster.start("m", *small, "--ha-port", "0", files=served)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        for _ in range(12):
            client.send_many("t", [Message(bytes(1_000)) for _ in range(100)])
    master.stop()
    store = Store(str(master.store_path))
    assert store.expire(int(time.time() * 1000) + 100 * 3_600_000) > 0
    store.close()
    master.start()
    assert status(master)["first_offset"] > 0
    slave = cluster.slave(master.endpoint, served, *small)
    wait_following(master)
    assert "this slave's store is made" in slave.log()
    with master.client() as at_master, slave.client() as at_slave:
        (held,) = at_master.queues("t")
        assert 0 < held.min_offset < held.max_offset == 1_200
        wait_until(lambda: there(lambda: at_slave.queues("t")) == [held], otherwise=slave.log)


@pytest.mark.usefixtures("believed")
def test_offsets_kept_at_a_slave_reach_its_master_over_tls(cluster: Cluster, served: TlsFiles) -> None:
    master = cluster.master(served, "async-master")
    slave = cluster.slave(master.endpoint, served)
    wait_following(master)
    with master.client() as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        for _ in range(5):
            client.send("t", b"x")
        client.put_group("readers")
    with Client(slave.endpoint, retries=0) as at_slave:
        wait_until(lambda: there(lambda: at_slave.group("readers")) is not None)  # it came last
        master.kill()
        wait_until(lambda: not status(slave)["following"])
        at_slave.commit_offsets("readers", {("t", 0): 4})
    master.start()
    with master.client() as client:
        wait_until(lambda: client.group_offsets("readers").get(("t", 0)) == 4, otherwise=slave.log)
