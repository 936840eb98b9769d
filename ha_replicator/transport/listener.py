"""Where slaves connect.

Owns the listening socket and a task for each connection; its link decides what is said.

Invariants: connections are bounded, those that have proved nothing yet by themselves; all are closed with the
listener. A higher epoch that a slave heard of is acted on before anything else is said or waited for.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial

from ha_replicator.identity import LinkClosed
from ha_replicator.links import LinkToSlave
from ha_replicator.master.replicas import Replicas
from ha_replicator.transport.peer import Peer, PeerReader
from ha_replicator.transport.tls_opening import SlaveOverTls, TlsOpenings
from ha_replicator.transport.wakeups import Wakeup, Wakeups
from store_native.errors import LakeMQError

log = logging.getLogger("lakemq.replication")

MAX_SLAVES = 64
MAX_UNPROVED = 32
"""Connections in their handshake; the oldest makes place for a new one, so that strangers lock nobody out."""
_READ_AHEAD_BYTES = 1 << 16


class ReplicationListener:
    """Serves slaves.

    Args:
        make_link: Makes the link of a connection; receives whether the peer is on this machine, and the time.
        replicas: Counts who follows.
        wakeups: Say when the log moved.
        on_change: Called after a slave came, went or reported.
        on_epoch: Called with an epoch, higher than this master's, that an authenticated slave heard of.
        tls: This broker's certificate; None takes connections without TLS.
    """

    def __init__(
        self,
        make_link: Callable[[bool, float], LinkToSlave],
        replicas: Replicas,
        wakeups: Wakeups,
        *,
        on_change: Callable[[], None],
        on_epoch: Callable[[int], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._make_link = make_link
        self._replicas = replicas
        self._wakeups = wakeups
        self._on_change = on_change
        self._on_epoch = on_epoch
        self._openings = None if tls is None else TlsOpenings(tls, MAX_UNPROVED)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unproved: dict[asyncio.Task[None], None] = {}
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Takes connections from now on.

        Raises:
            OSError: The port is taken, or the address is none of this machine.
        """
        loop = asyncio.get_running_loop()
        openings = self._openings

        def connection() -> asyncio.Protocol:
            reader = PeerReader(limit=_READ_AHEAD_BYTES, loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, self._connected, loop=loop)
            return protocol if openings is None else SlaveOverTls(openings, protocol)

        self._server = await loop.create_server(connection, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Closes the socket and all connections."""
        if self._server is not None:
            self._server.close()
        if self._openings is not None:
            self._openings.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            assert isinstance(reader, PeerReader)
            peer = Peer(reader, writer)
        except OSError:
            return
        if len(self._tasks) - len(self._unproved) >= MAX_SLAVES:
            log.warning("too many slaves", extra={"fields": {"slave": peer.address, "max": MAX_SLAVES}})
            await peer.close()
            return
        if len(self._unproved) >= MAX_UNPROVED:
            next(iter(self._unproved)).cancel()
        self._tasks.add(task)
        self._unproved[task] = None
        try:
            await self._serve(peer, task)
        except asyncio.CancelledError:
            await peer.close()
        except Exception:
            # A defect. Nobody awaits this task: unsaid it would be lost, and the other slaves go on.
            log.exception("serving a slave failed")
            await peer.close()
        finally:
            self._unproved.pop(task, None)
            self._tasks.discard(task)

    async def _serve(self, peer: Peer, task: asyncio.Task[None]) -> None:
        now = asyncio.get_running_loop().time
        link = self._make_link(peer.is_local, now())
        wakeup = self._wakeups.add(lambda: link.is_due(now()))
        said: LinkClosed | None = None
        reading = asyncio.create_task(self._read(peer, link, wakeup, task))

        def pump() -> bool:
            if peer.is_full or peer.is_over:
                return False
            peer.write(link.pump(now()))
            return not link.is_due(now())

        wakeup.at_once = pump
        try:
            while not (reading.done() or peer.is_over):
                try:
                    pieces = link.pump(now())
                except LakeMQError as error:
                    raise LinkClosed(error.code, error.detail) from error
                if pieces:
                    peer.write(pieces)
                    await self._drained(peer, link, reading)
                    if link.is_due(now()):
                        # What is large goes in pieces, so that the broker's other work comes in between.
                        await asyncio.sleep(0)
                        continue
                await wakeup.wait(link.next_deadline)
            await reading
        except LinkClosed as closed:
            said = closed
        except OSError as error:
            said = LinkClosed("CONNECTION_LOST", str(error))
        finally:
            reading.cancel()
            # Its end is known, or of no more interest: nobody shall hear of it as of an error that was lost.
            await asyncio.gather(reading, return_exceptions=True)
            self._wakeups.discard(wakeup)
            self._replicas.left(link)
            self._on_change()
        await peer.close(said.farewell if said else ())
        self._notify(peer, link, said)

    async def _drained(self, peer: Peer, link: LinkToSlave, reading: asyncio.Task[None]) -> None:
        """Waits for a slave that reads slowly, while it still speaks."""
        now = asyncio.get_running_loop().time
        while peer.is_full and not reading.done():
            drain = asyncio.create_task(peer.drained())
            try:
                await asyncio.wait({drain, reading}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            finally:
                drain.cancel()
                await asyncio.gather(drain, return_exceptions=True)
            link.check(now())

    async def _read(self, peer: Peer, link: LinkToSlave, wakeup: Wakeup, task: asyncio.Task[None]) -> None:
        given = False
        try:
            while data := await peer.read():
                self._take(peer, link, wakeup, task, data)
                given = given or (
                    link.following and peer.give_to(partial(self._take, peer, link, wakeup, task))
                )
        finally:
            wakeup.set()

    def _take(
        self, peer: Peer, link: LinkToSlave, wakeup: Wakeup, task: asyncio.Task[None], data: bytes
    ) -> None:
        now = asyncio.get_running_loop().time()
        following = link.following
        try:
            peer.write(link.receive(data, now))
        except LakeMQError as error:
            raise LinkClosed(error.code, error.detail) from error
        except LinkClosed as closed:
            if closed.epoch:
                self._on_epoch(closed.epoch)
            raise
        if link.following and not following:
            self._unproved.pop(task, None)
            self._replicas.joined(link)
            fields = {"slave": peer.address, "id": link.broker_id, "from": link.sent}
            log.info("a slave follows", extra={"fields": fields})
            wakeup.set()
        elif link.following:
            self._replicas.reported()
        self._on_change()
        self._wakeups.wake()  # what this slave confirms the others hear

    def _notify(self, peer: Peer, link: LinkToSlave, said: LinkClosed | None) -> None:
        fields = {"slave": peer.address, "id": link.broker_id}
        if said is None:
            log.warning("a slave closed its connection", extra={"fields": fields})
            return
        fields |= {"code": said.code, "reason": said.detail}
        log.warning("a replication connection ended", extra={"fields": fields})
