"""One question to the HTTP API of another broker or a name server, on the event loop.

Owns the connection of one question: written, answered, closed.

Invariants: a question lasts no longer than `TIMEOUT_S`, its answer is no longer than `MAX_ANSWER_BYTES`.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools

from lakemq.tls.trust import Trust, in_words

TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 1 << 20
_NO_ANSWER = "it gave no answer of a broker"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What was answered: a JSON object, or nothing where there is no content."""

    status: int
    content: dict[str, Any]


async def ask(
    endpoint: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    trust: Trust,
) -> HttpAnswer:
    """Asks and returns the answer, whatever its status.

    Args:
        endpoint: ``http://host:port``, or ``https://host:port``.
        path: Of the request.
        method: Of the request.
        body: JSON, or empty.
        headers: More than Host, Connection and those of the body.
        trust: Whose certificates are believed.

    Raises:
        TimeoutError: Nothing came in time.
        OSError: No connection, or its certificate is not accepted.
        ValueError: What came is no answer of LakeMQ's.
    """
    tls = trust.context() if endpoint.startswith("https:") else None
    async with asyncio.timeout(TIMEOUT_S):
        try:
            return await _exchange(endpoint, path, method, body, headers or {}, tls)
        except ssl.SSLError as error:
            raise ConnectionError(in_words(error)) from error


class _Parsed:
    """Collects what `httptools` finds."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self.body += data

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.complete = True


async def _exchange(
    endpoint: str,
    path: str,
    method: str,
    body: bytes,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
) -> HttpAnswer:
    place = urlsplit(endpoint)
    host, port = place.hostname or "", place.port or (80 if tls is None else 443)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        shown = f"[{host}]" if ":" in host else host
        lines = [f"{method} {path} HTTP/1.1", f"Host: {shown}:{port}", "Connection: close"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        parsed = _Parsed()
        parser = httptools.HttpResponseParser(parsed)
        arrived = 0
        while not parsed.complete and (data := await reader.read(1 << 16)):
            arrived += len(data)
            if arrived > MAX_ANSWER_BYTES:
                raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
            parser.feed_data(data)
        if not parsed.complete:
            raise ValueError(_NO_ANSWER)
        found = json.loads(bytes(parsed.body)) if parsed.body else {}
    except (httptools.HttpParserError, RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(_NO_ANSWER) from error
    finally:
        writer.transport.abort()
    if not isinstance(found, dict):
        raise ValueError(_NO_ANSWER)
    return HttpAnswer(parser.get_status_code(), found)
