"""However many addresses a host has, connecting takes the time of one call, and one that answers is found.

What comes after it has the call's time, not connecting's.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from urllib3.exceptions import EmptyPoolError

from lakemq.client import Client, InvalidRequest, Unavailable, transport
from lakemq.client.deadline import pool_of
from tests.support.tls_peer import CERTIFICATE, TRUSTED_FROM, over_tls

SILENT = [f"127.0.0.{n}" for n in range(2, 18)]


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which no address of SILENT answers: each has as many connections as it takes."""
    with ExitStack() as stack:
        number = 0
        for address in SILENT:
            listener = stack.enter_context(socket.socket())
            listener.bind((address, number))
            listener.listen(0)
            number = listener.getsockname()[1]
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex((address, number))
        yield number


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_connecting_takes_one_time_out_for_all_addresses(
    port: int, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(SILENT, monkeypatch)
    client = Client(f"{scheme}://broker.example:{port}", timeout_s=1.0, retries=0)
    began = time.monotonic()
    with pytest.raises(Unavailable) as unsent:
        client.queues("t")
    assert unsent.value.context["sent"] is False
    assert time.monotonic() - began < 10, "16 addresses, not 16 seconds"


def test_address_behind_a_silent_one_is_reached(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Queues(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.18", port), Queues) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        resolve_to([SILENT[0], "127.0.0.18"], monkeypatch)
        try:
            assert Client(f"broker.example:{port}", timeout_s=10.0).queues("t") == []
        finally:
            server.shutdown()
            thread.join()


def test_sending_has_the_time_of_the_call_not_that_of_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that takes a large body a little late is no broken one."""
    monkeypatch.setattr(transport, "_CONNECT_TIMEOUT_S", 0.2)
    send_all = socket.socket.sendall
    allowed: list[float | None] = []

    def noted(sending: socket.socket, data: bytes) -> None:
        allowed.append(sending.gettimeout())  # of a socket, it holds for the whole of a sendall
        send_all(sending, data)

    monkeypatch.setattr(socket.socket, "sendall", noted)

    def take(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            taken = b""
            while b"the body" not in taken and (piece := peer.recv(1 << 16)):
                taken += piece
            peer.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")

    with listening(take) as port, pytest.raises(InvalidRequest):
        Client(f"http://127.0.0.1:{port}", timeout_s=30.0, retries=0).send("t", b"the body")
    assert allowed
    assert all(seconds is not None and 10 < seconds <= 30 for seconds in allowed)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_peer_that_answers_a_byte_at_a_time_gets_no_more_time(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED_FROM, str(CERTIFICATE))
    drops = b"HTTP/1.1 200 OK\r\n\r\n[]"

    def drip(listener: socket.socket) -> None:
        with suppress(OSError), listener.accept()[0] as peer:
            peer.recv(1 << 16)
            for drop in drops:
                time.sleep(0.1)  # how slow: each byte comes well within the time of the call
                peer.sendall(bytes([drop]))

    wrap = over_tls if scheme == "https" else None
    with listening(drip, wrap) as port, pytest.raises(Unavailable, match="timed out"):
        Client(f"{scheme}://127.0.0.1:{port}", timeout_s=0.7, retries=0).queues("t")


def test_a_broker_behind_tls_is_read_and_one_nobody_vouches_for_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(listener: socket.socket) -> None:
        with suppress(OSError), listener.accept()[0] as peer:
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    with listening(answer, over_tls) as port, pytest.raises(Unavailable, match="certificate"):
        Client(f"https://127.0.0.1:{port}", retries=0).queues("t")
    monkeypatch.setenv(TRUSTED_FROM, str(CERTIFICATE))
    with listening(answer, over_tls) as port, Client(f"HTTPS://127.0.0.1:{port}") as client:
        assert client.queues("t") == []


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
def test_a_pool_has_so_many_connections_and_a_thread_beyond_them_waits(endpoint: str) -> None:
    pool = pool_of(endpoint, 2)
    for _ in range(2):
        pool._get_conn(timeout=0.01)  # noqa: SLF001 - as urlopen takes one
    with pytest.raises(EmptyPoolError):
        pool._get_conn(timeout=0.01)  # noqa: SLF001


@contextmanager
def listening(
    behave: Callable[[socket.socket], None], wrap: Callable[[socket.socket], socket.socket] | None = None
) -> Iterator[int]:
    """A port whose connections are taken as the test says."""
    plain = socket.create_server(("127.0.0.1", 0))
    with plain if wrap is None else wrap(plain) as listener:
        thread = Thread(target=behave, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


def resolve_to(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
