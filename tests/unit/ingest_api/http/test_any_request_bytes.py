"""Any bytes of a connection, in any pieces: read as requests as everybody else reads them, or refused.

Contract: no bytes make the parser raise anything but its refusal; what is stored are bodies that h11, which
shares no code with the parser, finds in the same bytes, in their order; how they were cut changes nothing;
no answer says that the broker has a defect. ``LAKEMQ_EXAMPLES`` sets the number of streams.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Iterator
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import h11
import httptools
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from ingest_api.http.uvicorn_protocol import BrokerProtocol
from tests.support.examples import examples
from tests.support.memory_connection import MemoryFrontDoor, close

TOPIC = "t"
TARGET = b"/api/v1/topics/t/messages"
EXAMPLES = int(os.environ.get("LAKEMQ_EXAMPLES", "200"))


class Watched(BrokerProtocol):
    """A connection that fails the test where a callback of the parser raises what is no refusal."""

    def _stop_parsing(self, error: httptools.HttpParserError) -> None:
        if isinstance(error, httptools.HttpParserCallbackError):
            cause = error.__context__
            refused = self._refusal is not None or isinstance(cause, httptools.HttpParserError)
            assert refused or self._ended, f"a callback raised {cause!r}"
        super()._stop_parsing(error)


class Front:
    """A broker whose topic has one queue, and how far that was read.

    Args:
        path: Of its store.
        runner: Runs its event loop.
    """

    def __init__(self, path: Path, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._front = runner.run(self._made(path))
        self._store = self._front.broker.store
        self._store.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
        self._read = 0

    async def _made(self, path: Path) -> MemoryFrontDoor:
        return MemoryFrontDoor(path)

    def exchange(self, pieces: list[bytes]) -> tuple[list[int], list[bytes]]:
        """Sends pieces over a connection of their own; returns the answers' statuses, and what was stored."""
        written = self._runner.run(self._exchange(pieces))
        assert self._store.wait_dispatched(self._store.watermarks()[0], 10_000)
        found = self._store.read_json(TOPIC, 0, self._read, max_messages=1000, max_bytes=1 << 30)
        self._read = found.next_offset
        messages = json.loads(found.messages)
        return statuses(written), [body_of(message) for message in messages]

    async def _exchange(self, pieces: list[bytes]) -> bytes:
        protocol, wire = self._front.connect(Watched)
        for piece in pieces:
            if wire.is_closing():
                break
            protocol.data_received(piece)
            await asyncio.sleep(0)
        if not wire.is_closing():
            protocol.eof_received()
        while protocol.tasks:
            await asyncio.wait(set(protocol.tasks))
        await close(protocol, wire)
        return wire.written

    def stop(self) -> None:
        """Stops the broker."""
        self._runner.run(self._front.broker.stop())


def body_of(message: dict[str, str]) -> bytes:
    """The body, whichever way it is shown."""
    return base64.b64decode(message["body_base64"]) if "body_base64" in message else message["body"].encode()


def statuses(written: bytes) -> list[int]:
    """The answers' statuses, without those that say to go on."""
    found = []
    while written:
        head, mark, written = written.partition(b"\r\n\r\n")
        assert mark, "an answer breaks off"
        first, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(headers.get(b"content-length", b"0"))
        assert len(written) >= length, "an answer breaks off"
        written = written[length:]
        if not first.startswith(b"HTTP/1.1 1"):
            found.append(int(first.split()[1]))
    return found


class End(Enum):
    """Where h11 stopped: behind the last request, inside one, or at what it takes for none."""

    BEHIND = auto()
    INSIDE = auto()
    REFUSED = auto()


def read_by_h11(stream: bytes) -> tuple[list[bytes], End]:
    """The bodies of whole sends to the topic that h11 finds, and where it stopped."""
    bodies: list[bytes] = []
    # Empty lines in front of a request mean nothing (RFC 9112, 2.2); h11 refuses them.
    while stream := stream.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(stream)
        target, body = "", b""
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                return bodies, End.REFUSED
            if isinstance(event, h11.Request):
                target = path_of(event.target) if event.method == b"POST" else ""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        if not isinstance(event, h11.EndOfMessage):
            return bodies, End.INSIDE
        if target == TARGET.decode():
            bodies.append(body)
        if connection.their_state is h11.MUST_CLOSE:
            break
        stream = connection.trailing_data[0]
    return bodies, End.BEHIND


def path_of(target: bytes) -> str:
    """The path of a request's target, decoded."""
    text = target.decode("latin-1")
    if not text.startswith("/"):
        text = "/" + text.partition("://")[2].partition("/")[2]
    return unquote(re.split("[?#]", text)[0])


def cut(stream: bytes, places: list[float]) -> list[bytes]:
    """The stream in pieces."""
    at = sorted({int(place * len(stream)) for place in places} - {0, len(stream)})
    return [stream[a:b] for a, b in pairwise([0, *at, len(stream)])]


def head(*lines: bytes) -> bytes:
    """A send's head."""
    first = (b"POST %b HTTP/1.1" % TARGET, b"Host: localhost", b"Content-Type: text/plain")
    return b"\r\n".join((*first, *lines)) + b"\r\n\r\n"


CHUNKED = head(b"Transfer-Encoding: chunked")
REQUESTS = [
    head(b"Content-Length: 5") + b"plain",
    head(b"Content-Length: 31") + b"GET /healthz HTTP/1.1\r\nHost: x\r\n"[:31],
    CHUNKED + b"5\r\nchunk\r\n0\r\n\r\n",
    CHUNKED + b"3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: y\r\n\r\n",
    head(b"Content-Length: 4", b"Connection: Upgrade", b"Upgrade: h2c") + b"h2c!",
    head(b"Content-Length: 6", b"Expect: 100-continue") + b"expect",
    head(b"Content-Length: 4", b"Connection: close") + b"last",
    head(b"Content-Length: 3").replace(b"/1.1", b"/1.0") + b"1.0",
    head(b"Content-Length: 7").replace(b"/messages", b"/messages?results=full") + b"a query",
    head(b"Content-Length: 6").replace(b"POST /", b"POST http://localhost:8090/") + b"a host",
    head(b"Content-Length: 2").replace(b"/t/", b"/%74/") + b"74",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nPOST",
    b"PUT /api/v1/topics/u HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
]
PIECES = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b",", b";", b"\0", b"\xff", b"%", b"+", b"-", b"0", b"1", b"_",
    b"0x", b"Content-Length: 4\r\n", b"Content-Length: 4, 4\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding : chunked\r\n", b" Folded: line\r\n",
    b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"HTTP/1.0", b"HTTP/2.0", b"CONNECT ",
    b"Host: localhost\r\n",
]  # fmt: skip

changes = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 6),
        st.one_of(st.sampled_from(PIECES), st.sampled_from(REQUESTS), st.binary(max_size=6)),
    ),
    max_size=3,
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Requests behind each other, with a few bytes replaced, or bytes alone."""
    stream = b"".join(draw(st.lists(st.sampled_from(REQUESTS), max_size=4)))
    for place, gone, put in draw(changes):
        at = int(place * len(stream))
        stream = stream[:at] + put + stream[at + gone :]
    return stream


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A broker for all streams."""
    with asyncio.Runner() as runner:
        front = Front(tmp_path_factory.mktemp("any_request_bytes"), runner)
        yield front
        front.stop()


@settings(max_examples=examples(EXAMPLES), suppress_health_check=[HealthCheck.too_slow])
@given(streams(), st.lists(st.floats(0, 1), max_size=6))
def test_any_bytes_are_the_requests_that_everybody_finds_in_them(
    front: Front, stream: bytes, places: list[float]
) -> None:
    note(f"{stream!r} at {places}")
    assume(b"HEAD " not in stream)  # whose answers say a length and have no body
    found, stored = front.exchange([stream])
    assert front.exchange(cut(stream, places)) == (found, stored), "it hangs on how they are cut"
    assert all(status < 500 or status in (501, 505) for status in found), "a defect is no answer"
    wanted, end = read_by_h11(stream)
    left = iter(wanted)
    # h11 is stricter in a few places, as with two spaces in a request line, and then reads no further.
    behind = [body for body in stored if body not in left]
    assert not behind or end is End.REFUSED, f"stored what nobody else finds: {behind}"
    if end is End.BEHIND and all(status == 200 for status in found):
        # It may stop earlier, where a folded header begins with "close".
        assert stored == (wanted[: len(stored)] if b"close" in stream.lower() else wanted)


def test_each_kind_of_request_is_read_as_everybody_reads_it(front: Front) -> None:
    """Without this, a broker that refuses everything would do."""
    for request in REQUESTS:
        found, stored = front.exchange([request])
        wanted, end = read_by_h11(request)
        assert (stored, end) == (wanted, End.BEHIND), request
        assert found == [200] or request.startswith(b"PUT"), request
