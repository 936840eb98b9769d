"""Brokers of one name: what is acknowledged is on a slave, and a slave becomes the master."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakemq import Message, broker_process
from lakemq.cli import app
from lakemq.client import Client, LakeMQError, Unavailable
from store_native import Store
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http, Reply
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

SECRET = {"LAKEMQ_CLUSTER_SECRET": "sixteen bytes at least"}
NO_WAIT = "[limits]\nsync_flush_timeout_s = 1.0\n"


class Cluster:
    """Brokers that are closed at the end."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        self._root = root
        self._on_exit = on_exit

    def master(self, role: str = "sync-master", name: str = "m", **options: Any) -> BrokerProcess:
        return self.start(name, ("--role", role, "--ha-port", "0"), **options)

    def slave(self, master: BrokerProcess, broker_id: int = 1, **options: Any) -> BrokerProcess:
        arguments = ("--role", "slave", "--broker-id", str(broker_id), "--master", master.endpoint)
        name = options.pop("name", f"s{broker_id}")
        return self.start(name, (*arguments, "--ha-port", "0"), **options)

    def start(self, name: str, arguments: tuple[str, ...], **options: Any) -> BrokerProcess:
        settings: dict[str, Any] = {"environment": SECRET, "config": NO_WAIT, **options}
        broker = BrokerProcess(self._root / name, arguments=arguments, **settings)
        self._on_exit.callback(broker.close)
        return broker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as on_exit:
        yield Cluster(tmp_path, on_exit)


def status(broker: BrokerProcess) -> dict[str, Any]:
    with broker.client() as client:
        return client.replication()


def wait_following(master: BrokerProcess, slaves: int = 1) -> None:
    wait_until(lambda: len(status(master)["slaves"]) == slaves, otherwise="the slaves follow")


def bodies(broker: BrokerProcess, topic: str = "t") -> list[str]:
    with broker.client() as client:
        if topic not in {config.topic for config in client.topics()}:
            return []
        return [
            message.body.decode()
            for queue in range(4)
            for message in client.pull(topic, queue, 0, max=1000).messages
        ]


def post(broker: BrokerProcess, body: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{broker.endpoint}/api/v1/topics/t/messages",
        json.dumps({"body": body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


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
        client.send_many("t", [Message(b"x" * 500_000) for _ in range(100)])
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
        wait_until(lambda: at_slave.group_offsets("readers") == {("t", 0): 4, ("t", 1): 4})
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
        wait_until(lambda: at_slave.queues("t")[0].max_offset == 9)
        master.kill()
        wait_until(lambda: not status(slave)["following"])
        at_slave.commit_offsets("readers", {("t", 0): 7})
        at_slave.promote("async-master")
        aside = slave.store_path / "lakemq" / "offsets-aside.json"
        wait_until(lambda: json.loads(aside.read_text())["groups"] == {})
        assert at_slave.group_offsets("readers") == {("t", 0): 7}
        at_slave.commit_offsets("readers", {("t", 0): 3})
        assert at_slave.group_offsets("readers") == {("t", 0): 3}
