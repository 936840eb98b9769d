"""Sockets under the links: what is broken is an error of connections, on the broker's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ha_replicator.identity import LinkClosed
from ha_replicator.link_place import LinkPlace
from ha_replicator.transport.peer import READ_BYTES, Peer, connected, is_loopback


def test_writing_to_a_connection_that_is_gone_is_a_connection_error() -> None:
    """The loop's transport would raise RuntimeError, which nobody who follows a master expects."""

    async def scenario() -> None:
        ended = asyncio.Event()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()
            ended.set()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        peer = await connected(LinkPlace("127.0.0.1", port, None))
        await ended.wait()
        with contextlib.suppress(ConnectionError):
            await peer.read()
        await peer.close([b"farewell"])
        with pytest.raises(ConnectionResetError):
            peer.write([b"z"])
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def with_peer(scenario: Callable[[Peer, asyncio.StreamWriter], Coroutine[Any, Any, None]]) -> None:
    """Runs a scenario with a connection and its other end."""

    async def main() -> None:
        taken: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

        async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.set_result(writer)

        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            peer = await connected(LinkPlace("127.0.0.1", server.sockets[0].getsockname()[1], None))
            writer = await taken
            await asyncio.wait_for(scenario(peer, writer), 60)
            writer.transport.abort()
            await peer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_what_arrives_is_given_on_in_its_order_and_nothing_between_is_lost() -> None:
    """Also what was kept and not read yet, when the link wants the rest as it arrives."""

    async def scenario(peer: Peer, writer: asyncio.StreamWriter) -> None:
        sent = b"".join(number.to_bytes(4, "big") for number in range(READ_BYTES // 2))
        got = bytearray()
        given = 0
        sending = asyncio.create_task(_write(writer, sent))
        while data := await peer.read():
            got += data
            await asyncio.sleep(0.001)  # so that more is kept than one reading takes
            given += peer.give_to(got.extend)
        await sending
        assert given == 1, "the reading goes on until nothing is left, and no further than the end"
        assert bytes(got) == sent

    with_peer(scenario)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    for at in range(0, len(data), 50_000):
        writer.write(data[at : at + 50_000])
        await writer.drain()
    writer.write_eof()


def test_what_is_left_to_be_read_is_not_passed_over() -> None:
    async def scenario(peer: Peer, writer: asyncio.StreamWriter) -> None:
        got = bytearray()
        peer._reader.feed_data(b"one")  # noqa: SLF001 - it is kept, as what arrives before it is read
        assert not peer.give_to(got.extend)
        writer.write(b"two")
        while len(got) < len(b"onetwo"):
            got += await peer.read()
        assert peer.give_to(got.extend)
        writer.write(b"three")
        writer.write_eof()
        assert await peer.read() == b""
        assert got == b"onetwothree"

    with_peer(scenario)


def test_what_the_taker_raises_ends_the_reading_and_no_more_is_taken() -> None:
    async def scenario(peer: Peer, writer: asyncio.StreamWriter) -> None:
        taken: list[bytes] = []

        def take(data: bytes) -> None:
            taken.append(data)
            raise LinkClosed("FRAME_ILLEGAL", "it is none")

        assert peer.give_to(take)
        writer.write(b"x")
        with pytest.raises(LinkClosed, match="it is none"):
            await peer.read()
        writer.write(b"y")
        writer.write_eof()
        await asyncio.wait_for(writer.drain(), 10)
        with pytest.raises(LinkClosed, match="it is none"):
            await peer.read()
        assert taken == [b"x"]
        await peer.drained()
        peer.write([b"farewell"])

    with_peer(scenario)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%lo", False),
    ],
)
def test_loopback_is_known_in_all_its_forms(host: str, local: bool) -> None:
    assert is_loopback(host) is local
