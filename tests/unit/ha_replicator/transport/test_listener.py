"""Strange peers on the replication port: none of them holds up a slave, or what a slave heard of."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ha_replicator.http_question import TIMEOUT_S
from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.master_address import MasterAddress
from ha_replicator.slave.link import SlaveLink
from ha_replicator.transport.listener import MAX_UNPROVED, ReplicationListener
from ha_replicator.transport.wakeups import Wakeups
from ha_replicator.wire.frames import Frame, FrameKind, FrameReader
from ha_replicator.wire.handshake import Refusal, decode
from lakemq.tls.files import serving_context
from lakemq.tls.trust import Trust
from store_native.errors import Unavailable
from tests.support.certificates import Authority
from tests.support.linked_brokers import identity, master_link, open_store, opening
from tests.support.waiting import wait_until_async


class Listening:
    """A master that listens, and what it received."""

    def __init__(self, path: Path, tls: ssl.SSLContext | None = None) -> None:
        self.store = open_store(path / "a", asks_replicas=True)
        self.slave = open_store(path / "b", "slave")
        self.log = self.store.replicated_log()
        self.epochs: list[int] = []
        self.pumps = 0
        self.replicas = Replicas(self.log, needed=1)
        self.wakeups = Wakeups(lambda: None)
        self.listener = ReplicationListener(
            self._link,
            self.replicas,
            self.wakeups,
            on_change=lambda: None,
            on_epoch=self._hear,
            tls=tls,
        )

    def _hear(self, epoch: int) -> None:
        """As the broker: it is the master no more, and all its links are told."""
        self.epochs.append(epoch)
        self.log.become_slave(epoch)
        self.wakeups.wake_all()

    def _link(self, local_peer: bool, now: float) -> MasterLink:
        link = master_link(self.log, now, local_peer=local_peer)
        pump = link.pump

        def counted(now: float) -> list[bytes]:
            self.pumps += 1
            return pump(now)

        link.pump = counted  # type: ignore[method-assign]  # counts what the driver asks for
        return link

    async def follow(self, broker_id: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects and shakes hands; returns the connection of a slave that follows."""
        before = len(self.replicas.links)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        link = SlaveLink(opening(broker_id, 0.0), self.slave.replicated_log())
        writer.writelines(link.begin())
        while not link.following:
            data = await reader.read(1 << 16)
            if not data:
                raise LinkClosed("CONNECTION_LOST", "the master closed it")
            writer.writelines(link.receive(data, 0.0))
            if link.cut_at is not None:
                self.slave.replicated_log().truncate_to(link.cut_at)
                writer.writelines(link.cut(0.0))
        await wait_until_async(lambda: len(self.replicas.links) == before + 1)
        return reader, writer


def run(
    path: Path,
    scenario: Callable[[Listening], Coroutine[Any, Any, None]],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Runs a scenario on the broker's own kind of loop."""

    async def main() -> None:
        listening = Listening(path, tls)
        await listening.listener.listen("127.0.0.1", 0)
        try:
            await asyncio.wait_for(scenario(listening), 60)
        finally:
            await listening.listener.close()
            listening.store.close()
            listening.slave.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_strangers_that_hold_connections_lock_no_slave_out(tmp_path: Path) -> None:
    async def scenario(listening: Listening) -> None:
        strangers = [
            await asyncio.open_connection("127.0.0.1", listening.listener.port)
            for _ in range(3 * MAX_UNPROVED)
        ]
        _, writer = await listening.follow()
        assert len(listening.replicas.links) == 1
        for _, stranger in [*strangers, (None, writer)]:
            stranger.transport.abort()

    run(tmp_path, scenario)


def test_epoch_of_a_slave_that_does_not_read_is_heard_at_once(tmp_path: Path) -> None:
    async def scenario(listening: Listening) -> None:
        _, writer = await listening.follow()
        end = 0
        for _ in range(60):
            end = listening.store.append_message("t", b"x" * 500_000).end_offset
        assert listening.store.wait_flushed(end, 30_000)
        listening.wakeups.wake()
        link = listening.replicas.links[0]
        await wait_until_async(lambda: link.sent > 4 << 20)  # as much as the socket takes
        writer.writelines(Frame(FrameKind.REPORT, 0, 0, 1, 65).pieces())
        await wait_until_async(lambda: listening.epochs == [65])
        writer.transport.abort()

    run(tmp_path, scenario)


def test_a_slave_that_heard_of_a_higher_epoch_is_told_so_and_not_what_came_of_it(tmp_path: Path) -> None:
    async def scenario(listening: Listening) -> None:
        reader, writer = await listening.follow()
        at = listening.store.watermarks()[1]
        writer.writelines(Frame(FrameKind.REPORT, at, at, 1, 2).pieces())
        frames = FrameReader(1 << 20)
        while data := await reader.read(1 << 16):
            frames.feed(data)
        said = [frame for frame in iter(frames.next, None) if frame.kind is FrameKind.REFUSAL]
        refusals = [decode(Refusal, frame) for frame in said]
        assert [(refusal.code, refusal.epoch) for refusal in refusals] == [("EPOCH_OVER", 2)]
        assert listening.epochs == [2]
        writer.transport.abort()

    run(tmp_path, scenario)


def test_what_one_slave_confirms_the_others_hear_though_nothing_else_moves(tmp_path: Path) -> None:
    """Whoever cannot dispatch wakes nobody."""

    async def scenario(listening: Listening) -> None:
        (reader, writer), (_, other) = await listening.follow(1), await listening.follow(2)
        end = listening.store.append_message("t", b"one").end_offset
        assert listening.store.wait_flushed(end, 30_000)
        listening.wakeups.wake()
        await wait_until_async(lambda: {link.sent for link in listening.replicas.links} == {end})
        began = asyncio.get_running_loop().time()
        other.writelines(Frame(FrameKind.REPORT, end, end, 1, 1).pieces())
        frames = FrameReader(1 << 20)
        confirmed = -1
        while confirmed < end:
            data = await reader.read(1 << 16)
            assert data, "the master closed it"
            frames.feed(data)
            confirmed = max([confirmed, *(frame.confirmed for frame in iter(frames.next, None))])
        assert asyncio.get_running_loop().time() - began < LinkLimits().heartbeat_s / 2
        for each in (writer, other):
            each.transport.abort()

    run(tmp_path, scenario)


def test_moves_that_leave_a_link_nothing_to_say_do_not_wake_its_driver(tmp_path: Path) -> None:
    """Of each range a master hears of three moves of its log, and one is the slave's."""

    async def scenario(listening: Listening) -> None:
        _, writer = await listening.follow()
        end = listening.store.append_message("t", b"one").end_offset
        assert listening.store.wait_flushed(end, 30_000)
        listening.wakeups.wake()
        await wait_until_async(lambda: listening.replicas.links[0].sent == end)
        before = listening.pumps
        for _ in range(1000):
            listening.wakeups.wake()
            await asyncio.sleep(0)
        assert listening.pumps <= before + 10, "a heartbeat each 5 s"
        later = listening.store.append_message("t", b"two").end_offset
        assert listening.store.wait_flushed(later, 30_000)
        listening.wakeups.wake()
        await wait_until_async(lambda: listening.replicas.links[0].sent == later)
        writer.transport.abort()

    run(tmp_path, scenario)


def test_connection_that_is_reset_at_once_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listening: Listening) -> None:
        for _ in range(50):
            connection = socket.create_connection(("127.0.0.1", listening.listener.port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()
        _, writer = await listening.follow()
        writer.transport.abort()

    run(tmp_path, scenario)
    assert "Traceback" not in caplog.text
    assert "Unhandled" not in caplog.text


def test_connection_that_is_gone_right_behind_its_tls_handshake_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    asking = Trust(str(authority.file)).context()

    def shake_hands(port: int) -> tuple[socket.socket, bytes]:
        """Returns the connection and the last of what is to be sent."""
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = asking.wrap_bio(arrived, leaving, server_hostname="127.0.0.1")
        connection = socket.create_connection(("127.0.0.1", port))
        while True:
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                connection.sendall(leaving.read())
                arrived.write(connection.recv(1 << 16))
            else:
                return connection, leaving.read()

    async def scenario(listening: Listening) -> None:
        for number in range(20):
            connection, last = await asyncio.to_thread(shake_hands, listening.listener.port)
            # All at once, as the loop sees it: the handshake's end, rubbish, and that the peer is gone.
            connection.sendall(last + b"no record" * (number % 2))
            if number % 4 < 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()

    run(tmp_path, scenario, serving_context(authority.certificate()))
    assert "Traceback" not in caplog.text
    assert "Unhandled" not in caplog.text


@pytest.mark.parametrize("answer", ["dribble", "endless", "other shape", "escape"])
def test_master_that_answers_nonsense_is_left_in_time(answer: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
        try:
            if answer == "dribble":
                writer.write(head)
                while True:
                    writer.write(b" ")
                    await asyncio.sleep(0.2)
            elif answer == "endless":
                writer.write(head)
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()
            else:
                body = b"[1]" if answer == "other shape" else b'{"broker_name": "\\u001b]0;pwn\\u0007"}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except OSError:
            return
        finally:
            writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable) as refused:
            async with asyncio.timeout(TIMEOUT_S + 20):
                await MasterAddress([f"http://127.0.0.1:{port}"], identity(1), Trust()).find()
        assert refused.value.detail.isprintable()
        assert len(refused.value.detail) < 500
        server.close()

    asyncio.run(scenario())
