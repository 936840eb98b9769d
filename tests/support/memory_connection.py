"""A broker's connection without a socket: bytes go in by a call, and what is written is kept.

Owns the broker and the event loop's side of the connection; the loop is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from ingest_api.broker.broker import Broker
from ingest_api.http.app import create_app
from ingest_api.http.front_door import FrontDoor
from ingest_api.http.uvicorn_protocol import BrokerProtocol
from ingest_api.setting_sources import load_settings


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.closing = False

    def write(self, data: Any) -> None:
        """Called by the protocol."""
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        """Called by the protocol when it has said all."""
        return False

    def is_closing(self) -> bool:
        """Says whether either side has closed."""
        return self.closing

    def close(self) -> None:
        """Called by the protocol."""
        self.closing = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Gives the addresses of both ends."""
        return {"peername": ("127.0.0.1", 4), "sockname": ("127.0.0.1", 5)}.get(name, default)

    def pause_reading(self) -> None:
        """Called by the protocol; nothing is read here."""

    def resume_reading(self) -> None:
        """Called by the protocol; nothing is read here."""

    def abort(self) -> None:
        """Called by the protocol."""
        self.closing = True

    def get_write_buffer_size(self) -> int:
        """Gives what the test says is unread."""
        return self.unread


class MemoryFrontDoor:
    """A broker with asynchronous flush, and connections to it.

    Args:
        path: Of its store.
    """

    def __init__(self, path: Path) -> None:
        settings = load_settings(
            None,
            {
                "store.path": str(path),
                "store.flush": "async",
                "store.flush_interval_ms": 1,
                "store.commitlog_file_size": 8 << 20,
                "limits.disk_full_ratio": 1,
            },
        )
        self.broker = Broker(settings.broker, "http://127.0.0.1:5", ("127.0.0.1", 5))
        self.door = FrontDoor(self.broker, settings, "http")
        self._config = uvicorn.Config(
            create_app(self.door), loop="none", log_config=None, interface="asgi3", proxy_headers=False
        )
        self._config.load()

    def connect(self, kind: type[BrokerProtocol] = BrokerProtocol) -> tuple[BrokerProtocol, Wire]:
        """Opens a connection; the caller closes it."""
        wire = Wire()
        protocol = kind(self._config, ServerState(), {}, asyncio.get_running_loop())
        protocol.connection_made(wire)
        return protocol, wire


async def close(protocol: BrokerProtocol, wire: Wire) -> None:
    """Closes a connection, and returns when none of its tasks is left."""
    wire.close()
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.tasks)


@asynccontextmanager
async def connection(path: Path) -> AsyncIterator[tuple[FrontDoor, BrokerProtocol, Wire]]:
    """A connection to a broker with asynchronous flush, and what it is written to."""
    front = MemoryFrontDoor(path)
    try:
        protocol, wire = front.connect()
        yield front.door, protocol, wire
        await close(protocol, wire)
    finally:
        await front.broker.stop()
