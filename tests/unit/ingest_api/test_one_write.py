"""One write for a response: the same bytes in the same order, in fewer calls."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ingest_api.one_write import OneWriteTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Wire:
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return name


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def transport(wire: Wire) -> OneWriteTransport:
    return OneWriteTransport(cast(asyncio.Transport, wire))


def test_head_and_body_leave_together(wire: Wire, transport: OneWriteTransport) -> None:
    transport.write(HEAD)
    assert wire.written == []
    transport.write(b"body")
    transport.write(HEAD)
    transport.write(b"next")
    assert wire.written == [HEAD + b"body", HEAD + b"next"]


def test_a_large_body_is_not_copied(wire: Wire, transport: OneWriteTransport) -> None:
    large = bytes(1 << 20)
    transport.write(HEAD)
    transport.write(large)
    assert wire.written[0] == HEAD
    assert wire.written[1] is large


def test_100_continue_leaves_at_once(wire: Wire, transport: OneWriteTransport) -> None:
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert wire.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_further_pieces_of_a_body_leave_as_they_come(wire: Wire, transport: OneWriteTransport) -> None:
    transport.write(HEAD)
    for piece in (b"1\r\na\r\n", b"1\r\nb\r\n", b"0\r\n\r\n"):
        transport.write(piece)
    assert b"".join(wire.written) == HEAD + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
    assert len(wire.written) == 3


def test_a_head_without_a_body_leaves_when_its_response_is_complete(
    wire: Wire, transport: OneWriteTransport
) -> None:
    transport.write(HEAD)
    transport.flush()
    transport.flush()
    assert wire.written == [HEAD]


def test_a_close_loses_nothing(wire: Wire, transport: OneWriteTransport) -> None:
    transport.write(HEAD)
    transport.close()
    assert wire.written == [HEAD]
    assert wire.closed


def test_everything_else_is_the_transports_own(transport: OneWriteTransport) -> None:
    assert transport.get_extra_info("peername") == "peername"
