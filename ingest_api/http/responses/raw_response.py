"""Answers JSON in one piece: status, headers and body in one write.

Owns the shortest path from an answer to the socket. Over ASGI an answer is two messages; uvicorn checks
every header of the first, and writes each with a system call of its own. For a small answer that costs more
than storing the message. So where the server is uvicorn on httptools, the bytes are written to its
connection at once, with the same state changes ``RequestCycle.send`` makes; on any other server, or when
anything is out of the ordinary, the two ASGI messages are sent.

Invariants: the answer is the same either way.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import Message, Send

from ingest_api.http.request.cycle import RequestCycle

JSON = b"application/json"
_CACHED_LENGTHS = 1024
_JOIN_UP_TO = 512 << 10
"""A body above it is not copied behind its head."""


# uvicorn's headers of every answer, and the same as bytes. Each second brings a new list, with the new date.
_common: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")


def common_lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns uvicorn's headers of every answer as they go over the wire."""
    global _common
    known, lines = _common
    if headers is not known:
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        _common = (headers, lines)
    return lines


def head_of(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns a status line and headers, without the empty line behind them."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())]
    return b"".join(lines + [b"%b: %b\r\n" % header for header in headers])


class JsonResponse:
    """JSON answers of one status; heads are made once for each length.

    Args:
        status: The HTTP status.
        extra: Headers of every such answer beside the body's own.
    """

    __slots__ = ("_extra", "_heads", "_line", "_status")

    def __init__(self, status: int, *extra: tuple[bytes, bytes]) -> None:
        self._status = status
        self._extra = extra
        self._line = head_of(status, list(extra))
        self._heads = [self._head(length) for length in range(_CACHED_LENGTHS)]

    async def send(self, send: Send, body: bytes) -> None:
        """Answers a request.

        Args:
            send: ASGI's, as the server gave it.
            body: JSON.
        """
        cycle = getattr(send, "__self__", None)
        if type(cycle) is RequestCycle and self._write(cycle, body):
            return
        await send(self._start(len(body)))
        await send({"type": "http.response.body", "body": body})

    def _write(self, cycle: RequestCycle, body: bytes) -> bool:
        if len(body) > _JOIN_UP_TO or not _is_ordinary(cycle):
            return False
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        cycle.response_complete = True
        common = common_lines(cycle.default_headers)
        cycle.transport.write(b"%b%b\r\n%b" % (self.head(len(body)), common, body))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def head(self, length: int) -> bytes:
        """Returns status line and headers for a body of ``length`` bytes, without the common headers."""
        return self._heads[length] if length < _CACHED_LENGTHS else self._head(length)

    def _head(self, length: int) -> bytes:
        return b"%bcontent-type: %b\r\ncontent-length: %d\r\n" % (self._line, JSON, length)

    def _start(self, length: int) -> Message:
        return {
            "type": "http.response.start",
            "status": self._status,
            "headers": [*self._extra, (b"content-type", JSON), (b"content-length", b"%d" % length)],
        }


def _is_ordinary(cycle: RequestCycle) -> bool:
    """Says whether nothing but writing is left to do: no broken or full connection, no closing."""
    return (
        cycle.keep_alive
        and not cycle.disconnected
        and not cycle.response_started
        and not cycle.flow.write_paused
        and not cycle.access_log
        and cycle.scope["method"] != "HEAD"
    )
