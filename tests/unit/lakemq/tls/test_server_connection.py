"""The serving end of a TLS connection, with a client in memory.

Contract: what the protocol hears and says is what the client says and hears, however the bytes are cut; it
hears nothing that was not encrypted; what waits to be sent is seen; nobody holds a connection by saying
nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemq.tls.files import serving_context
from lakemq.tls.server_connection import TlsConnection
from lakemq.tls.trust import Trust
from tests.support.certificates import Authority
from tests.support.waiting import wait_until_async

FULL_BYTES = 64 << 10
BOTH_WAYS = st.lists(st.binary(max_size=40_000), max_size=6)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and a client's."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    serving = serving_context(authority.certificate())
    assert serving is not None
    return serving, Trust(str(authority.file)).context()


class Below(asyncio.Transport):
    """What the connection writes to; the test carries the bytes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent = bytearray()
        self.largest = 0
        self.ended = self.closed = self.aborted = False
        self.when_full: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        assert not self.ended, "nothing is sent behind the end"
        was_full = len(self.sent) > FULL_BYTES
        self.sent += data
        if not was_full and len(self.sent) > FULL_BYTES:
            self.when_full()
        self.largest = max(self.largest, len(data))

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Heard(asyncio.Protocol):
    """Notes what it hears, and answers it if it is to."""

    def __init__(self, answer: Callable[[bytes], bytes] = bytes, *, stays: bool = False) -> None:
        self.data = bytearray()
        self.ends = 0
        self.paused = False
        self.unread = 0
        self.lost = False
        self.transport: asyncio.Transport | None = None
        self._answer = answer
        self._stays = stays

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.data += data
        self.transport.write(self._answer(data))

    def eof_received(self) -> bool:
        self.ends += 1
        return self._stays

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.paused = True
        self.unread = self.transport.get_write_buffer_size()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Client:
    """A client of one connection, and the connection."""

    def __init__(
        self,
        contexts: tuple[ssl.SSLContext, ssl.SSLContext],
        protocol: asyncio.Protocol,
        *,
        at_once: int = 1 << 30,
        handshake_s: float = 60.0,
    ) -> None:
        serving, asking = contexts
        self.below = Below()
        self.connection = TlsConnection(serving, protocol, handshake_s=handshake_s)
        self._at_once = at_once
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.secure = asking.wrap_bio(self._arrived, self._leaving, server_hostname="127.0.0.1")
        self.heard = bytearray()
        self.below.when_full = self.connection.pause_writing
        self.connection.connection_made(self.below)

    def shake_hands(self) -> None:
        while True:
            try:
                self.secure.do_handshake()
            except ssl.SSLWantReadError:
                self.carry()
            else:
                self.carry()
                return

    def say(self, data: bytes) -> None:
        if data:
            self.secure.write(data)
        self.carry()

    def hear(self) -> bool:
        """Reads what there is; whether the server has said goodbye."""
        try:
            while piece := self.secure.read(1 << 16):
                self.heard += piece
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLZeroReturnError:
            pass
        return True

    def carry(self) -> None:
        """Brings what was written by either to the other."""
        data = self._leaving.read()
        for at in range(0, len(data), self._at_once):
            self.connection.data_received(data[at : at + self._at_once])
        self._arrived.write(bytes(self.below.sent))
        self.below.sent.clear()


def run(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        scenario()

    asyncio.run(main())


@given(said=BOTH_WAYS, at_once=st.integers(1, 20_000))
def test_what_is_said_is_heard_however_it_is_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], said: list[bytes], at_once: int
) -> None:
    def scenario() -> None:
        protocol = Heard(lambda data: data[::-1])
        client = Client(contexts, protocol, at_once=max(at_once, sum(map(len, said)) // 200))
        client.shake_hands()
        for data in said:
            client.say(data)
        assert protocol.data == b"".join(said)
        client.carry()
        client.hear()
        assert sorted(client.heard) == sorted(protocol.data)
        client.connection.connection_lost(None)
        assert protocol.lost

    run(scenario)


def test_who_speaks_plainly_is_not_heard(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    def scenario() -> None:
        protocol = Heard()
        client = Client(contexts, protocol)
        client.connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        client.connection.data_received(b"more")
        assert client.below.closed
        client.connection.connection_lost(None)
        assert protocol.transport is None
        assert not protocol.data
        assert not protocol.lost

    run(scenario)


def test_bytes_that_are_no_handshake_behind_its_beginning_close_the_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    def scenario() -> None:
        protocol = Heard()
        client = Client(contexts, protocol)
        client.connection.data_received(b"\x16\x03\x01\x00\x05hello")
        assert client.below.closed
        assert protocol.transport is None

    run(scenario)


def test_a_protocol_that_takes_no_more_connections_hears_nothing_of_this_one(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    class Full(Heard):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert self.transport is not None
            self.transport.abort()

    def scenario() -> None:
        protocol = Full()
        client = Client(contexts, protocol)
        with pytest.raises(ssl.SSLWantReadError):
            client.secure.do_handshake()
        client.carry()
        client.secure.do_handshake()
        client.say(b"a request in the same packet as the handshake's end")
        assert client.below.aborted
        assert protocol.data == b""

    run(scenario)


def test_a_changed_record_ends_the_connection(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    def scenario() -> None:
        protocol = Heard()
        client = Client(contexts, protocol)
        client.shake_hands()
        client.connection.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert client.below.aborted
        assert protocol.data == b""

    run(scenario)


def test_what_nobody_reads_is_seen(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    def scenario() -> None:
        protocol = Heard(lambda data: bytes(1 << 20))
        client = Client(contexts, protocol)
        client.shake_hands()
        client.secure.write(b"a question")
        client.connection.data_received(client._leaving.read())  # noqa: SLF001 - it reads nothing
        assert protocol.transport is not None
        assert protocol.transport.get_write_buffer_size() >= 1 << 20
        client.connection.pause_writing()
        assert protocol.paused

    run(scenario)


def test_a_large_answer_is_handed_on_in_pieces(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """What lies between keeps its size for as long as the connection lives."""

    def scenario() -> None:
        protocol = Heard()
        client = Client(contexts, protocol)
        client.shake_hands()
        assert protocol.transport is not None
        answer = bytes(range(256)) * 8_192
        protocol.transport.write(answer)
        assert client.below.largest < 128 << 10
        assert protocol.unread > len(answer), "who is asked to pause sees all of what it wrote"
        client.carry()
        client.hear()
        protocol.transport.writelines([answer[:100_000]] * 3)
        client.carry()
        client.hear()
        assert client.heard == answer + answer[:100_000] * 3

    run(scenario)


def test_a_client_that_has_said_all_hears_its_answer(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    def scenario() -> None:
        protocol = Heard(stays=True)
        client = Client(contexts, protocol)
        client.shake_hands()
        with pytest.raises(ssl.SSLWantReadError):
            client.secure.unwrap()
        client.carry()
        assert protocol.ends == 1
        assert client.connection.eof_received(), "the end of the connection is the same end"
        assert protocol.ends == 1
        assert protocol.transport is not None
        protocol.transport.writelines([b"the ", b"answer"])
        assert not client.below.closed
        protocol.transport.close()
        client.carry()
        assert client.below.closed

    run(scenario)


def test_a_close_says_goodbye_and_waits_for_nobody(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    def scenario() -> None:
        protocol = Heard()
        client = Client(contexts, protocol)
        client.shake_hands()
        client.say(b"x")
        assert protocol.transport is not None
        protocol.transport.write(b"last")
        protocol.transport.write_eof()
        protocol.transport.write(b"behind the end")
        client.carry()
        assert client.hear(), "the end is a goodbye, no break"
        assert client.heard == b"xlast"
        protocol.transport.close()
        assert client.below.closed

    run(scenario)


def test_who_says_nothing_is_left_in_time(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def scenario() -> None:
        silent = Client(contexts, Heard(), handshake_s=0.01)
        in_time = Client(contexts, Heard(), handshake_s=0.01)
        in_time.shake_hands()
        await wait_until_async(lambda: silent.below.aborted)
        assert not in_time.below.aborted

    asyncio.run(scenario())
