"""Name servers as processes of their own, and brokers that register with all of them.

Contract: a broker and its topics are known within moments of its start, gone at its stop, and dropped when it
is killed; a name server that was down receives all again; without the cluster's secret nobody registers. No
slave is promoted beside the master that they know, unless it is told to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemq.client import Client, InvalidRequest
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.name_servers import BrokersOfCluster, NameServer
from tests.support.waiting import wait_until


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of the whole cluster\n")
    return file


@pytest.fixture
def name_servers(tmp_path: Path, secret: Path) -> Iterator[list[NameServer]]:
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            servers.append(NameServer(tmp_path, name, "--cluster-secret-file", str(secret)))
            stack.callback(servers[-1].kill)
        yield servers


@contextlib.contextmanager
def broker(directory: Path, name: str, servers: list[NameServer], secret: Path) -> Iterator[BrokerProcess]:
    named = [word for server in servers for word in ("--nameserver", server.url)]
    given = (*named, "--nameserver_heartbeat_s", "1", "--cluster-secret-file", str(secret))
    process = BrokerProcess(directory, broker_name=name, arguments=given)
    try:
        yield process
    finally:
        process.close()


def wait_for_all(servers: list[NameServer], found: Callable[[NameServer], object], expected: object) -> None:
    wait_until(lambda: [found(server) for server in servers] == [expected] * len(servers))


def test_brokers_are_known_to_every_name_server_from_their_start_to_their_end(
    tmp_path: Path, name_servers: list[NameServer], secret: Path
) -> None:
    with (
        broker(tmp_path / "a", "broker-a", name_servers, secret) as a,
        broker(tmp_path / "b", "broker-b", name_servers, secret) as b,
    ):

        def holders(server: NameServer) -> list[str]:
            return server.holders("orders")

        known = {"broker-a": {"0": a.endpoint}, "broker-b": {"0": b.endpoint}}
        wait_for_all(name_servers, NameServer.addresses, known)
        with Client(a.endpoint) as client:
            client.send("orders", b"1")  # makes the topic
        with Client(b.endpoint) as client:
            client.put_topic("orders")
        wait_for_all(name_servers, holders, ["broker-a", "broker-b"])
        with Client(b.endpoint) as client:
            client.delete_topic("orders")
        wait_for_all(name_servers, holders, ["broker-a"])
        b.stop()
        for server in name_servers:
            assert server.addresses() == {"broker-a": {"0": a.endpoint}}, "it said goodbye"
        a.kill()
        wait_for_all(name_servers, NameServer.addresses, {})
        assert [holders(server) for server in name_servers] == [[], []]


def test_a_name_server_that_was_down_receives_all_registrations_again(
    tmp_path: Path, name_servers: list[NameServer], secret: Path
) -> None:
    one, two = name_servers
    with broker(tmp_path / "a", "broker-a", name_servers, secret) as a:
        with Client(a.endpoint) as client:
            client.put_topic("orders")
        wait_until(lambda: one.holders("orders") == two.holders("orders") == ["broker-a"])
        one.kill()
        with Client(a.endpoint) as client:
            client.put_topic("bills")
        wait_until(lambda: two.holders("bills") == ["broker-a"])
        one.start()
        wait_until(lambda: one.holders("bills") == one.holders("orders") == ["broker-a"])
        a.stop()
        assert one.addresses() == two.addresses() == {}
    assert one.stop() == 0


def test_who_does_not_know_the_secret_is_not_registered_and_says_so(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("a secret of another cluster")
    with broker(tmp_path / "a", "broker-a", name_servers, wrong) as a:
        wait_until(lambda: "not registered with a name server" in a.log())
        assert "NO_PERMISSION" in a.log()
        assert name_servers[0].addresses() == {}
        with a.client() as client:
            assert client.send("orders", b"1").status == "SEND_OK", "it serves all the same"
    unsigned = {"cluster": "c", "address": "http://10.0.0.1:1", "data_version": "1", "topics": []}
    stranger = Http(name_servers[0].url)
    stranger.put("/brokers/broker-z/0", unsigned).problem(403, "NO_PERMISSION")
    stranger.call("DELETE", "/brokers/broker-z/0").problem(403, "NO_PERMISSION")


def test_what_is_no_question_to_a_name_server_is_a_problem(name_servers: list[NameServer]) -> None:
    client = Http(name_servers[0].url)
    client.get("/routes/nowhere").problem(404, "TOPIC_NOT_EXIST")
    client.get("/topics").problem(404, "REQUEST_CODE_NOT_SUPPORTED")
    client.post("/topics/t/messages", {"body": "1"}).problem(405, "REQUEST_CODE_NOT_SUPPORTED")


def test_a_registration_of_a_newer_release_is_taken_and_what_is_not_known_of_it_passed_over(
    tmp_path: Path,
) -> None:
    server = NameServer(tmp_path, "names")
    try:
        topic = {"topic": "t", "read_queue_nums": 1, "write_queue_nums": 1, "perm": 6, "later": [1]}
        told = {"cluster": "c", "address": "http://127.0.0.1:1", "data_version": "1", "later": {"x": 1}}
        answer = Http(server.url).put("/brokers/broker-a/0", {**told, "topics": [topic]})
        assert answer.status == 200, answer.body
        assert server.holders("t") == ["broker-a"]
    finally:
        server.kill()


def test_a_slave_is_not_promoted_beside_another_that_was_without_force(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a")
        first, second = cluster.slave("broker-a"), cluster.slave("broker-a", 2)
        with first.client() as one, second.client() as two:
            with master.client() as client:
                assert client.send("t", "before").status == "SEND_OK"
                end = client.replication()["appended"]
            wait_until(lambda: one.replication()["appended"] == two.replication()["appended"] == end)
            master.kill()
            one.promote()
            registered = {"0": first.endpoint, "2": second.endpoint}
            wait_until(lambda: cluster.name_servers[0].addresses()["broker-a"] == registered)
            assert one.send("t", "only the new master has it").status == "SEND_OK"
            ends = (one.replication()["appended"], end)
            with pytest.raises(InvalidRequest) as refused:
                two.promote()
            said = f"its master {first.endpoint} answers and takes messages (epoch 65, its log ends at %d, "
            assert refused.value.detail.startswith((said + "this one's at %d), which would be lost") % ends)
            assert two.replication()["role"] == "slave"
            assert two.promote(force=True)["epoch"] == 66
            wait_until(lambda: one.replication()["role"] == "slave", otherwise="one of them is the master")
            assert two.send("t", "goes on").status == "SEND_OK"
