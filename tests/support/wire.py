"""A connection byte by byte: what a client library would never send, and every answer told apart.

Owns one socket.

Invariants: nothing waits longer than the connection's time-out.
"""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any

JSON_TYPE = b"Content-Type: application/json"


@dataclass(frozen=True)
class Answer:
    """One answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """Checks that this is a problem of that status and code, in full form; returns it."""
        assert self.headers.get("content-type") == "application/problem+json", (self.status, self.body[:300])
        problem: dict[str, Any] = self.json
        assert (self.status, problem["status"], problem["code"]) == (status, status, code), problem
        assert {"type", "title", "detail", "instance", "retryable", "request_id"} <= problem.keys()
        return problem


class RawConnection:
    """A connection to a broker on loopback.

    Args:
        port: The broker's.
        timeout_s: For each wait.
    """

    def __init__(self, port: int, timeout_s: float = 20.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes) -> RawConnection:
        """Sends bytes as they are; a connection the broker has closed takes them silently."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)
        return self

    def half_close(self) -> RawConnection:
        """Says that nothing more will be sent; to a broker that has closed, nothing."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        return self

    def answer(self, head: bool = False) -> Answer:
        """Reads one answer; ``head`` says that its request was HEAD, so that no body follows."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        raw, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if head else int(headers.get("content-length", "0"))
        while len(self._received) < length:
            self._more()
        body, self._received = self._received[:length], self._received[length:]
        return Answer(int(first.split()[1]), headers, body)

    def answers(self) -> list[Answer]:
        """Reads answers until the broker closes."""
        found = []
        while not self.closed():
            found.append(self.answer())
        return found

    def closed(self) -> bool:
        """Waits for more; says whether it was the end."""
        try:
            if not self._received:
                self._more()
        except ConnectionError:
            return True
        return False

    def _more(self) -> None:
        piece = self.sock.recv(65536)
        if not piece:
            raise ConnectionError(f"the broker closed after {self._received[:300]!r}")
        self._received += piece


def post(topic: str, body: bytes, *lines: bytes, version: bytes = b"HTTP/1.1") -> bytes:
    """Renders a send of JSON."""
    return request(
        b"POST /api/v1/topics/%b/messages" % topic.encode(),
        JSON_TYPE,
        b"Content-Length: %d" % len(body),
        *lines,
        body=body,
        version=version,
    )


def request(
    start: bytes,
    *lines: bytes,
    host: bytes | None = b"localhost",
    body: bytes = b"",
    version: bytes = b"HTTP/1.1",
) -> bytes:
    """Renders a request from its method and target, and its header lines."""
    named = lines if host is None else (b"Host: " + host, *lines)
    return b"%b %b\r\n%b\r\n%b" % (start, version, b"".join(line + b"\r\n" for line in named), body)


def message(text: str) -> bytes:
    """Renders one message for queue 0."""
    return json.dumps({"body": text, "queue_id": 0}).encode()
