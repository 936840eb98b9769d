"""Where slaves connect.

Owns the listening socket and a task for each connection; master/link.py decides what is said.

Invariants: connections are bounded, those that have proved nothing yet too; all are closed with the listener.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Literal

from ha_replicator.identity import BrokerIdentity, LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.log import ReplicatedLog
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.transport.peer import Peer
from ha_replicator.transport.wakeups import Wakeups, wait_until
from ha_replicator.wire.credentials import Credentials
from store_native.errors import LakeMQError

log = logging.getLogger("lakemq.replication")

MAX_CONNECTIONS = 64


class ReplicationListener:
    """Serves slaves.

    Args:
        me: This broker.
        replicated_log: Its log.
        credentials: The cluster's secret.
        replicas: Counts who follows.
        wakeups: Say when the log moved.
        flush: This broker's flush mode.
        on_change: Called after a slave came, went or reported.
        on_epoch: Called with an epoch, higher than this master's, that an authenticated slave heard of.
        limits: The bounds of a connection.
    """

    def __init__(
        self,
        me: BrokerIdentity,
        replicated_log: ReplicatedLog,
        credentials: Credentials,
        replicas: Replicas,
        wakeups: Wakeups,
        *,
        flush: Literal["sync", "async"],
        on_change: Callable[[], None],
        on_epoch: Callable[[int], None],
        limits: LinkLimits,
    ) -> None:
        self._me = me
        self._log = replicated_log
        self._credentials = credentials
        self._replicas = replicas
        self._wakeups = wakeups
        self._flush = flush
        self._on_change = on_change
        self._on_epoch = on_epoch
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Takes connections from now on.

        Raises:
            OSError: The port is taken, or the address is none of this machine.
        """
        self._server = await asyncio.start_server(self._connected, host, port, limit=1 << 16)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Closes the socket and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = Peer(reader, writer)
        if len(self._tasks) >= MAX_CONNECTIONS:
            await peer.close()
            return
        self._tasks.add(task)
        try:
            await self._serve(peer)
        except asyncio.CancelledError:
            await peer.close()
        except Exception:
            log.exception("serving a slave failed")
            await peer.close()
        finally:
            self._tasks.discard(task)

    async def _serve(self, peer: Peer) -> None:
        now = asyncio.get_running_loop().time
        link = MasterLink(
            self._me,
            self._log,
            self._credentials,
            flush=self._flush,
            local_peer=peer.is_local,
            nonce=secrets.token_hex(16),
            now=now(),
            limits=self._limits,
        )
        moved = self._wakeups.add()
        said: LinkClosed | None = None
        reading = asyncio.create_task(self._read(peer, link, moved))
        try:
            while not reading.done():
                try:
                    pieces = link.pump(now())
                except LakeMQError as error:
                    raise LinkClosed(error.code, error.detail) from error
                if pieces:
                    peer.write(pieces)
                    await peer.drained()
                    # What is large goes in pieces, so that the broker's other work comes in between.
                    await asyncio.sleep(0)
                else:
                    await wait_until(moved, link.next_deadline(), now())
            await reading
        except LinkClosed as closed:
            said = closed
        except OSError as error:
            said = LinkClosed("CONNECTION_LOST", str(error))
        finally:
            reading.cancel()
            self._wakeups.discard(moved)
            self._replicas.left(link)
            self._on_change()
        await peer.close(said.farewell if said else ())
        self._tell(peer, link, said)

    async def _read(self, peer: Peer, link: MasterLink, moved: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time
        try:
            while data := await peer.read():
                following = link.following
                try:
                    peer.write(link.receive(data, now()))
                except LakeMQError as error:
                    raise LinkClosed(error.code, error.detail) from error
                if link.following and not following:
                    self._replicas.joined(link)
                    assert link.hello is not None
                    fields = {"slave": peer.address, "id": link.hello.broker_id, "from": link.sent}
                    log.info("a slave follows", extra={"fields": fields})
                elif link.following:
                    self._replicas.reported()
                self._on_change()
                moved.set()
        finally:
            moved.set()

    def _tell(self, peer: Peer, link: MasterLink, said: LinkClosed | None) -> None:
        fields = {"slave": peer.address, "id": link.hello.broker_id if link.hello else None}
        if said is None:
            log.warning("a slave closed its connection", extra={"fields": fields})
            return
        fields |= {"code": said.code, "reason": said.detail}
        log.warning("a replication connection ended", extra={"fields": fields})
        if said.epoch:
            self._on_epoch(said.epoch)
