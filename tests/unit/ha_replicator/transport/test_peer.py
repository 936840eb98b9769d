"""Sockets under the links: what is broken is an error of connections, on the broker's own event loop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvloop

from ha_replicator.transport.peer import Peer, is_loopback


def test_writing_to_a_connection_that_is_gone_is_a_connection_error() -> None:
    """The loop's transport would raise RuntimeError, which nobody who follows a master expects."""

    async def scenario() -> None:
        ended = asyncio.Event()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()
            ended.set()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await ended.wait()
        with contextlib.suppress(ConnectionError):
            await peer.read()
        await peer.close([b"farewell"])
        with pytest.raises(ConnectionResetError):
            peer.write([b"z"])
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


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
