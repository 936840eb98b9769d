"""Sends a response's head and body in one write.

Owns a wrapper around uvicorn's transport. uvicorn writes the head, then the body, and uvloop turns
each into a system call; for a small answer the second one costs as much as everything LakeMQ does.
What never breaks: the bytes and their order; a head leaves at the latest when its response is
complete, or when the connection closes. Given to uvicorn by server.py.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_JOIN_UP_TO = 64 << 10
"""A body above it is not copied behind its head; it is worth a system call of its own."""


class OneWriteTransport:
    """Keeps a response's head until its body comes.

    Args:
        transport: The connection's own; whatever is not written goes straight to it.
    """

    __slots__ = ("_head", "_transport", "_write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._write = transport.write
        self._head = b""

    def write(self, data: bytes) -> None:
        """Called by uvicorn for each piece of a response, and for ``100 Continue``."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) > _JOIN_UP_TO:
                self._write(head)
                self._write(data)
            else:
                self._write(head + data)
        # A head ends in an empty line. 100 Continue does too, but the client waits for that one.
        elif data[:9] == b"HTTP/1.1 " and data[9:12] != b"100" and data[-4:] == b"\r\n\r\n":
            self._head = data
        else:
            self._write(data)

    def flush(self) -> None:
        """Writes a head whose body did not come, as after HEAD."""
        if self._head:
            head, self._head = self._head, b""
            self._write(head)

    def close(self) -> None:
        """Called by uvicorn to close the connection once everything is written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Called by uvicorn after each response."""
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        """Hands everything else on: addresses once a connection, pausing and resuming."""
        return getattr(self._transport, name)


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol on such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop for each connection."""
        super().connection_made(cast(asyncio.Transport, OneWriteTransport(transport)))

    def on_response_complete(self) -> None:
        """Called by uvicorn when a response is complete."""
        cast(OneWriteTransport, self.transport).flush()
        super().on_response_complete()
