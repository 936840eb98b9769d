"""The short way of small sends: taken when a request is whole and plain, and only then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from ingest_api.app import create_app, send_topic
from ingest_api.broker import Broker
from ingest_api.protocol import BrokerProtocol
from ingest_api.settings import load_settings

BODY = b'{"body":"x"}'
HEAD = b"POST /api/v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PLAIN = HEAD + LENGTH + b"\r\n" + BODY


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 4), "sockname": ("127.0.0.1", 5)}.get(name, default)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


async def written_at_once(path: Path, data: bytes) -> bytes:
    """Returns what a broker with asynchronous flush wrote before the event loop went on."""
    settings = load_settings(None, {"store.path": str(path), "store.flush": "async"})
    broker = Broker(settings, "http://127.0.0.1:5", ("127.0.0.1", 5))
    try:
        config = uvicorn.Config(
            create_app(broker), loop="none", log_config=None, interface="asgi3", proxy_headers=False
        )
        config.load()
        wire = Wire()
        protocol = BrokerProtocol(config, ServerState(), {}, asyncio.get_running_loop())
        protocol.connection_made(wire)
        protocol.data_received(data)
        found = wire.written
        wire.close()
        protocol.connection_lost(None)
        await asyncio.gather(*protocol.tasks)
        return found
    finally:
        await broker.stop()


def test_a_whole_plain_send_is_answered_without_a_task(tmp_path: Path) -> None:
    found = asyncio.run(written_at_once(tmp_path, PLAIN * 3))
    assert found.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert found.count(b'"status":"SEND_OK"') == 3


@pytest.mark.parametrize(
    "data",
    [
        PLAIN[:-1],
        HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Connection: close\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Content-Encoding: gzip\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 1\r\n\r\n{",
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"POST", b"PUT"),
        PLAIN.replace(b"/messages", b"/messages?results=full"),
        PLAIN.replace(b"/topics/t/", b"/topics/%74/"),
        PLAIN.replace(b"/topics/t/", b"/topics/../"),
    ],
)
def test_anything_else_takes_a_task(tmp_path: Path, data: bytes) -> None:
    assert asyncio.run(written_at_once(tmp_path, data)) == b""


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        (b"/api/v1/topics/orders/messages", "orders"),
        (b"/api/v1/topics/%RETRY%g/messages", None),
        (b"/api/v1/topics/orders/messages?x=1", None),
        (b"/api/v1/topics/a/b/messages", None),
        (b"/api/v1/topics//messages", None),
        (b"http://host/api/v1/topics/orders/messages", None),
    ],
)
def test_the_topic_of_a_plain_target(target: bytes, topic: str | None) -> None:
    assert send_topic(target) == topic
