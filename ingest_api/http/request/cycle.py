"""One request and its answer, with what uvicorn's own does not know: a client that has said all it will say.

Owns the difference between a client that is gone and one that has only closed its side of the connection.

Invariants: the latter still gets its answer; a request that waits for something to happen learns that
nobody will wait with it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ingest_api.http.request.guard import malformed
from store_native.errors import InvalidRequest

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class RequestCycle(RequestResponseCycle):
    """Arguments as uvicorn gives them.

    Attributes:
        half_closed: The client will send no more; it may still read.
    """

    half_closed = False
    _was_read = False

    async def run_asgi(self, app: Any) -> None:
        """Called by uvicorn, which cancels a task when a stop takes too long, and then logs its stack."""

        async def until_cut_off(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                self.disconnected = True
                self.transport.abort()

        await super().run_asgi(until_cut_off)

    async def receive(self) -> Any:
        """Called by the application; ``http.disconnect`` also says that the client has closed its side."""
        if self._was_read and self.half_closed:
            return {"type": "http.disconnect"}
        if self.disconnected:
            # The connection has had its last answer; uvicorn would ask for the body behind it.
            self.waiting_for_100_continue = False
        message = await super().receive()
        if message["type"] == "http.request":
            if self._was_read and self.half_closed:
                return {"type": "http.disconnect"}
            self._was_read = not message.get("more_body", False)
        return message

    def end_of_client(self) -> None:
        """Says that the client has closed its side; called by the connection."""
        self.half_closed = True
        self.message_event.set()

    def abandon(self) -> None:
        """Ends a request that will never be whole; its task stores nothing and answers nothing."""
        self.disconnected = True
        self.message_event.set()


def describe_request(scope: HTTPScope, method: bytes, target: bytes, version: str) -> InvalidRequest | None:
    """Writes a request line into its ASGI scope; returns why the path is none."""
    scope["method"] = method.decode("ascii")
    scope["http_version"] = version
    parsed = httptools.parse_url(target)
    raw_path, query = parsed.path or b"/", parsed.query or b""
    path = raw_path.decode("ascii")
    if "%" in path:
        if _BAD_ESCAPE.search(raw_path):
            return malformed("a % in the path is not followed by two hexadecimal digits")
        path = unquote(path)
    scope["path"] = path
    scope["raw_path"] = raw_path
    scope["query_string"] = query
    return None
