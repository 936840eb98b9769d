"""Brokers, name servers and slaves behind certificates, with real processes.

Contract: with a certificate every port speaks TLS and nothing else; nobody goes on with a peer whose
certificate is not vouched for, or is another host's; who speaks the wrong way hears what is wrong, and
nothing is stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from ingest_api.http.connection.watch import REFUSED_AT_ONCE
from lakemq import Message, broker_process
from lakemq.cli import app
from lakemq.client import Client, InvalidRequest, LakeMQError, OutcomeUnknown, Unavailable
from lakemq.tls.files import TlsFiles
from store_native import Store
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority, arguments
from tests.support.name_servers import NameServer
from tests.support.waiting import wait_until

SECRET = {"LAKEMQ_CLUSTER_SECRET": "sixteen bytes at least"}
CA_FILE = "LAKEMQ_CA_FILE"
BYTES = 16 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> TlsFiles:
    return authority.certificate()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody believes."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def elsewhere(authority: Authority) -> TlsFiles:
    """A certificate of another host."""
    return authority.certificate("IP:127.0.0.2", "DNS:elsewhere.example", file="elsewhere")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, served: TlsFiles) -> Iterator[BrokerProcess]:
    """A broker behind a certificate, for tests that keep to topics of their own."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        arguments=arguments(served),
        config="[http]\nhead_timeout_s = 0.5\n",
    )
    yield process
    process.close()


class Cluster:
    """Processes that are closed at the end."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        self._root = root
        self._on_exit = on_exit

    def start(self, name: str, *words: str, files: TlsFiles | None = None) -> BrokerProcess:
        given = (*words, *(arguments(files) if files else ()))
        started = BrokerProcess(self._root / name, arguments=given, environment=SECRET)
        self._on_exit.callback(started.close)
        return started

    def master(self, files: TlsFiles | None, role: str = "sync-master", name: str = "m") -> BrokerProcess:
        return self.start(name, "--role", role, "--ha-port", "0", files=files)

    def slave(
        self, master: str, files: TlsFiles | None, *words: str, name: str = "s", broker_id: int = 1
    ) -> BrokerProcess:
        role = ("--role", "slave", "--broker-id", str(broker_id), "--master", master, "--ha-port", "0")
        return self.start(name, *role, *words, files=files)

    def name_server(self, files: TlsFiles | None) -> NameServer:
        server = NameServer(self._root, "names", *(arguments(files) if files else ()))
        self._on_exit.callback(server.kill)
        return server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as on_exit:
        yield Cluster(tmp_path, on_exit)


@pytest.fixture
def believed(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of the test, and commands, believe the authority."""
    monkeypatch.setenv(CA_FILE, str(authority.file))


def status(broker: BrokerProcess) -> dict[str, Any]:
    with broker.client() as client:
        return client.replication()


def wait_following(master: BrokerProcess) -> None:
    wait_until(lambda: len(status(master)["slaves"]) == 1, otherwise="the slave follows")


def bodies(broker: BrokerProcess) -> list[str]:
    with broker.client() as client:
        pulls = [
            client.pull("t", queue.queue_id, 0, max=1000, max_bytes=BYTES) for queue in client.queues("t")
        ]
    return sorted(message.body.decode() for pull in pulls for message in pull.messages)


# Sends and reads


def test_what_is_sent_is_read_as_json_as_arrow_and_by_a_long_poll(
    broker: BrokerProcess, authority: Authority
) -> None:
    assert broker.endpoint.startswith("https://")
    with Client(broker.endpoint, ca_file=str(authority.file)) as client:
        client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
        assert client.send("orders", b"small").status == "SEND_OK"
        large = os.urandom(3 << 20)
        assert client.send("orders", large).status == "SEND_OK"
        pulled = client.pull("orders", 0, 0, max_bytes=BYTES)
        assert [message.body for message in pulled.messages] == [b"small", large]
        batch = client.pull_arrow("orders", 0, 0, max_bytes=BYTES).batch
        assert batch.column("body").to_pylist() == [b"small", large]
        assert client.cluster()["brokers"][0]["addresses"] == {"0": broker.endpoint}

        found: list[bytes] = []

        def wait() -> None:
            with Client(broker.endpoint, ca_file=str(authority.file)) as waiting:
                found.extend(m.body for m in waiting.pull("orders", 0, 2, wait_ms=30_000).messages)

        thread = threading.Thread(target=wait)
        thread.start()
        client.send("orders", b"awaited")
        thread.join(30)
        assert found == [b"awaited"]


@pytest.mark.usefixtures("believed")
def test_commands_believe_whom_the_environment_names(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker.client() as client:
        client.send("said", b"by a command")
    assert app.main(["tail", "said", "--endpoint", broker.endpoint]) == 0
    assert "by a command" in capsys.readouterr().out


def test_a_pipe_of_sends_on_one_connection_is_answered_in_order(
    broker: BrokerProcess, authority: Authority
) -> None:
    request = (
        b"POST /api/v1/topics/pipe/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 12\r\n\r\n" + b'{"body":"x"}'
    )
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", broker.port), 30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.version() == "TLSv1.3"
        connection.sendall(request * 50)
        answered = b""
        while answered.count(b"SEND_OK") < 50:
            piece = connection.recv(1 << 16)
            assert piece, answered
            answered += piece
    assert answered.count(b"HTTP/1.1 200 OK") == 50


# Who is not believed


def test_a_broker_that_nobody_vouches_for_gets_no_message(broker: BrokerProcess, stranger: Authority) -> None:
    for ca_file in (str(stranger.file), None):
        with (
            Client(broker.endpoint, ca_file=ca_file, retries=0) as client,
            pytest.raises(Unavailable, match="its certificate is not accepted") as refused,
        ):
            client.send("t-unsent", b"secret")
        assert refused.value.context["sent"] is False
        assert not isinstance(refused.value, OutcomeUnknown)


def test_a_certificate_of_another_host_is_refused_by_clients(cluster: Cluster, elsewhere: TlsFiles) -> None:
    broker = cluster.start("m", files=elsewhere)
    with (
        Client(broker.endpoint, ca_file=elsewhere.ca, retries=0) as client,
        pytest.raises(Unavailable, match=r"certificate is not valid for '127\.0\.0\.1'"),
    ):
        client.send("t", b"secret")


@pytest.mark.parametrize("wrong", ["authority", "host"])
@pytest.mark.usefixtures("believed")
def test_a_broker_registers_with_no_name_server_it_does_not_believe(
    cluster: Cluster, served: TlsFiles, elsewhere: TlsFiles, stranger: Authority, wrong: str
) -> None:
    names = cluster.name_server(served if wrong == "authority" else elsewhere)
    own = TlsFiles(served.cert, served.key, str(stranger.file) if wrong == "authority" else served.ca)
    broker = cluster.start("m", "--nameserver", names.url, files=own)
    wait_until(lambda: "not registered with a name server" in broker.log(), otherwise=broker.log)
    assert "its certificate is not accepted" in broker.log()
    with broker.client() as client:
        assert client.send("t", b"x").status == "SEND_OK", "it serves all the same"


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


def ha_port_of(master: BrokerProcess) -> int:
    found = re.search(r"listening for slaves.*?port=(\d+)", master.log())
    assert found is not None, master.log()
    return int(found[1])


def test_a_certificate_for_another_address_than_the_brokers_is_warned_of_at_the_start(
    cluster: Cluster, served: TlsFiles, elsewhere: TlsFiles
) -> None:
    warning = "the certificate is not for the address"
    log = cluster.start("m", files=elsewhere).log()
    assert warning in log
    assert 'address=127.0.0.1 names="127.0.0.2, elsewhere.example"' in log
    there = ("--http.advertised_address", "elsewhere.example")
    assert warning not in cluster.start("there", *there, files=elsewhere).log()
    assert warning not in cluster.start("fits", files=served).log()


def test_a_page_that_came_plainly_from_the_same_address_is_of_another_site(
    broker: BrokerProcess, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    answers = {}
    for scheme in ("https", "http"):
        connection = HTTPSConnection("127.0.0.1", broker.port, timeout=30, context=context)
        connection.request("GET", "/healthz", headers={"Origin": f"{scheme}://127.0.0.1:{broker.port}"})
        answers[scheme] = connection.getresponse().status
        connection.close()
    assert answers == {"https": 200, "http": 403}


# Who speaks the wrong way


def test_a_plain_client_is_told_that_the_port_speaks_tls(broker: BrokerProcess) -> None:
    with (
        Client(broker.endpoint.replace("https", "http"), retries=0) as client,
        pytest.raises(
            InvalidRequest, match=r"this port speaks TLS: its address begins with https://"
        ) as told,
    ):
        client.send("t", b"x" * (1 << 20))
    assert told.value.code == "MALFORMED_REQUEST"


def test_a_client_that_speaks_tls_to_a_plain_port_is_told(shared_broker: BrokerProcess) -> None:
    with (
        Client(shared_broker.endpoint.replace("http", "https"), retries=0) as client,
        pytest.raises(Unavailable, match="speaks no TLS: a plain address begins with http://") as told,
    ):
        client.send("t", b"x")
    assert told.value.context["sent"] is False
    with shared_broker.client() as client:
        assert client.topics() == [] or "t" not in {topic.topic for topic in client.topics()}


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


@pytest.mark.parametrize("names_speak_tls", [True, False])
@pytest.mark.usefixtures("believed")
def test_a_registration_that_speaks_the_wrong_way_is_told(
    cluster: Cluster, served: TlsFiles, names_speak_tls: bool
) -> None:
    names = cluster.name_server(served if names_speak_tls else None)
    wrong = names.url.replace("https", "http") if names_speak_tls else names.url.replace("http", "https")
    broker = cluster.start("m", "--nameserver", wrong, files=served)
    told = "this port speaks TLS" if names_speak_tls else "speaks no TLS"
    wait_until(lambda: told in broker.log(), otherwise=broker.log)
    with Client(names.url) as client:
        assert client.cluster()["brokers"] == []


@pytest.mark.parametrize(
    ("door", "said"),
    [
        ("http", b""),
        ("http", b"\x16"),
        ("http", b"\x16\x03\x01\x02\x00"),
        ("http", b"\x16\x03\x01\x00\x05hello"),
        ("http", b"\x00" * 100),
        ("replication", b"\x16\x03\x01\x00\x05hello"),
        ("replication", b"\x00" * 100),
        ("replication", (1 << 40).to_bytes(8, "big")),
    ],
)
def test_who_does_not_shake_hands_is_closed_in_time(
    broker: BrokerProcess, cluster: Cluster, served: TlsFiles, door: str, said: bytes
) -> None:
    port = broker.port if door == "http" else ha_port_of(cluster.master(served))
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(said)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                answer += piece
    assert b"LMHA" not in answer


def test_connections_in_their_handshake_count_among_all(
    start_broker: Callable[..., BrokerProcess], served: TlsFiles
) -> None:
    bounds = "[http]\nmax_connections = 4\nhead_timeout_s = 600.0\n"
    process = start_broker(arguments=arguments(served), config=bounds)
    with ExitStack() as stack, selectors.DefaultSelector() as closed:
        for _ in range(4 + REFUSED_AT_ONCE + 10):
            silent = socket.create_connection(("127.0.0.1", process.port), 30)
            closed.register(stack.enter_context(silent), selectors.EVENT_READ)
        wait_until(lambda: len(closed.select(0)) == 10)
    with Client(process.endpoint, ca_file=served.ca, retries=0) as client:
        wait_until(lambda: answers(client), otherwise="its places are free again")


def test_answers_that_nobody_reads_are_bounded_behind_tls_too(
    start_broker: Callable[..., BrokerProcess], served: TlsFiles
) -> None:
    bounds = "[http]\nwrite_timeout_s = 1.5\n[limits]\nmax_unsent_bytes = 4194304\n"
    process = start_broker(arguments=arguments(served), config=bounds)
    target = b"/api/v1/topics/t/queues/0/messages?offset=0&max_bytes=16777216"
    pull = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
    context = ssl.create_default_context(cafile=served.ca)
    with Client(process.endpoint, ca_file=served.ca, retries=0) as client, ExitStack() as stack:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        for _ in range(8):
            client.send("t", bytes(1 << 20))

        def is_busy() -> bool:
            try:
                client.pull("t", 0, 8)
            except Unavailable as error:
                return error.code == "SYSTEM_BUSY"
            return False

        def asks_in_vain() -> bool:
            plain = stack.enter_context(socket.socket())
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect(("127.0.0.1", process.port))
            silent = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            silent.sendall(pull)
            return is_busy()

        wait_until(asks_in_vain)
        wait_until(lambda: not is_busy(), otherwise="who does not read is cut off")


def answers(client: Client) -> bool:
    try:
        client.topics()
    except Unavailable:
        return False
    return True


# A cluster


@pytest.mark.usefixtures("believed")
def test_brokers_are_found_through_a_name_server_behind_tls(cluster: Cluster, served: TlsFiles) -> None:
    names = cluster.name_server(served)
    assert names.url.startswith("https://")
    beats = ("--nameserver", names.url, "--nameserver_heartbeat_s", "1")
    one = cluster.start("a", *beats, "--broker-name", "one", files=served)
    two = cluster.start("b", *beats, "--broker-name", "two", files=served)
    with Client(names.url) as client:
        wait_until(lambda: known(client) == {"one": one.endpoint, "two": two.endpoint})
        client.put_topic("orders")
        for number in range(20):
            assert client.send("orders", str(number).encode()).status == "SEND_OK"
        held = {name: broker.queues("orders") for name, broker in client.brokers("orders").items()}
        assert all(sum(queue.max_offset for queue in queues) for queues in held.values())
        assert app.main(["topic", "show", "orders", "--endpoint", names.url]) == 0
        two.stop()
        wait_until(lambda: "two" not in {entry["broker_name"] for entry in client.cluster()["brokers"]})


def known(client: Client) -> dict[str, str]:
    try:
        entries = client.cluster()["brokers"]
    except LakeMQError:
        return {}
    return {entry["broker_name"]: entry["addresses"].get("0") for entry in entries}


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
        assert client.promote("async-master") == {"epoch": 65, "role": "async-master"}
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


LMHA = b"LMHA"


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
        wait_until(lambda: at_slave.queues("t") == [held], otherwise=lambda: at_slave.queues("t"))


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
        wait_until(lambda: at_slave.queues("t")[0].max_offset == 5)
        master.kill()
        wait_until(lambda: not status(slave)["following"])
        at_slave.commit_offsets("readers", {("t", 0): 4})
    master.start()
    with master.client() as client:
        wait_until(lambda: client.group_offsets("readers").get(("t", 0)) == 4, otherwise=slave.log)


# Files that are none


@pytest.mark.parametrize("command", ["serve", "nameserver"])
def test_a_start_with_an_unusable_certificate_is_one_line_that_names_the_file(
    authority: Authority, served: TlsFiles, tmp_path: Path, command: Any
) -> None:
    expired = authority.certificate(file="expired", days=-1)
    other = authority.certificate(file="other")
    nowhere = str(tmp_path / "nowhere.pem")
    wrong: dict[str, tuple[str, ...]] = {
        f"tls.cert: {expired.cert} would be refused: certificate has expired": arguments(expired),
        f"tls.key: {other.key} is not the key of": ("--tls-cert", served.cert, "--tls-key", other.key),
        f"tls.cert: {nowhere} cannot be read": ("--tls-cert", nowhere, "--tls-key", served.key),
        f"tls.ca: {nowhere} cannot be read": ("--tls-ca", nowhere),
        "tls.key: is missing": ("--tls-cert", served.cert),
    }
    for number, (said, words) in enumerate(wrong.items()):
        store = ("--store", str(tmp_path / "store")) if command == "serve" else ()
        log = tmp_path / f"{number}.log"
        process = broker_process.BrokerProcess(["--port", "0", *store, *words], log, command=command)
        with pytest.raises(broker_process.NotReady) as ended:
            process.wait_ready()
        assert ended.value.exit_code not in (0, None)
        assert said in log.read_text()
        assert "Traceback" not in log.read_text()
    assert not (tmp_path / "store").exists()


def test_a_stop_waits_for_no_goodbye(cluster: Cluster, served: TlsFiles) -> None:
    """Clients that keep connections, idle and in a long poll, do not hold up a stop."""
    process = cluster.start("m", files=served)
    with Client(process.endpoint, ca_file=served.ca) as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        ended = threading.Event()

        def wait() -> None:
            with contextlib.suppress(LakeMQError):
                client.pull("t", 0, 0, wait_ms=30_000)
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        began = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - began < 10
        assert ended.wait(30)
        thread.join()
