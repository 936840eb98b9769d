"""What a connection behind TLS may cost, before its handshake and after it, with real processes.

Contract: who does not shake hands is closed in time and counts among all, and answers that nobody reads are
bounded as without TLS.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from ingest_api.http.connection.watch import REFUSED_AT_ONCE
from lakemq.client import Client, Unavailable
from lakemq.tls.files import TlsFiles
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import arguments
from tests.support.tls_cluster import Cluster, ha_port_of
from tests.support.waiting import wait_until


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
