"""However many addresses a host has, connecting takes the time of one call, and one that answers is found.

What comes after it has the call's time, not connecting's.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from lakemq.client import Client, InvalidRequest, Unavailable, transport

SIZE = 32 << 20
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

    def take_late(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            time.sleep(0.8)  # how late: the sender's buffers are full for longer than connecting may take
            taken = 0
            while taken < SIZE and (piece := peer.recv(1 << 20)):
                taken += len(piece)
            peer.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")

    with listening(take_late) as port, pytest.raises(InvalidRequest):
        Client(f"http://127.0.0.1:{port}", timeout_s=30.0, retries=0).send("t", b"x" * SIZE)


@contextmanager
def listening(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose connections are taken as the test says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
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
