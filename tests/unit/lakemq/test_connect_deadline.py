"""However many addresses a host has, connecting takes the time of one call, and one that answers is found."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from lakemq.client import Client, Unavailable

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


def resolve_to(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
