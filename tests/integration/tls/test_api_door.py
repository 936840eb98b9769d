"""The API of a broker behind a certificate, asked by clients, commands and pages, with real processes.

Contract: with a certificate the port speaks TLS and nothing else; no client goes on with a broker whose
certificate is not vouched for, or is another host's; who speaks the wrong way hears what is wrong, and
nothing is stored.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from http.client import HTTPSConnection

import pytest

from lakemq.cli import app
from lakemq.client import Client, InvalidRequest, OutcomeUnknown, Unavailable
from lakemq.tls.files import TlsFiles
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.tls_cluster import Cluster

BYTES = 16 << 20


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
