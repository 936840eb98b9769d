"""Makes a slave's store from its master's, whose log does not begin at 0 any more.

Owns the connection of it, and trying again.

Invariants: where nothing was begun and no master answers, the slave starts without; what was begun is tried
until it is done.

Threads: the event loop; finishing, which syncs files, runs on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from ha_replicator.identity import LinkClosed
from ha_replicator.link_opening import LinkOpening
from ha_replicator.link_place import LinkPlace
from ha_replicator.slave.bootstrap_link import BootstrapLink
from ha_replicator.transport.peer import Peer, connected
from store_native import Bootstrap
from store_native.errors import LakeMQError

log = logging.getLogger("lakemq.replication")

PAUSE_S = 1.0
MOST_TRIES = 5
"""Where nothing was begun: a connection that broke off says nothing of whether a store is needed."""
LOOK_EVERY_S = 0.5


class Bootstrapper:
    """Makes one store.

    Args:
        path: Its directory.
        file_size: Of the log's files.
        open_link: Says what a connection begins with; receives whether the master is on this machine, and
            the time.
        find_master: Says where the master takes slaves.
        pause_s: Between two tries.
        make_store: Begins a store in a directory, with log files of a size, whose log begins at an offset.
    """

    def __init__(
        self,
        path: Path,
        file_size: int,
        open_link: Callable[[bool, float], LinkOpening],
        find_master: Callable[[], Awaitable[LinkPlace]],
        *,
        pause_s: float = PAUSE_S,
        make_store: Callable[[Path, int, int], Bootstrap] = Bootstrap,
    ) -> None:
        self._path = path
        self._file_size = file_size
        self._open_link = open_link
        self._find_master = find_master
        self._pause_s = pause_s
        self._make_store = make_store
        self._begun = (path / "lakemq" / "bootstrap").exists()

    async def run(self) -> None:
        """Returns when the slave may open its store: it is made, or not needed, or no master says what is.

        Raises:
            LakeMQError: STORE_LOCKED, DISK_FULL, ...
        """
        if not await asyncio.to_thread(Bootstrap.is_wanted, self._path):
            return
        last = ""
        tries = 0
        while True:
            tries += 1
            answered = False
            try:
                if await self._once():
                    return
                reason = "the master closed the connection"
            except LinkClosed as closed:
                answered, reason = True, str(closed)
            except (OSError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            except LakeMQError as error:
                if error.code in ("STORE_LOCKED", "DISK_FULL"):
                    raise
                answered, reason = True, f"{error.code}: {error.detail}"
            if not self._begun and (answered or tries >= MOST_TRIES):
                log.info("no store to begin with from the master", extra={"fields": {"reason": reason}})
                return
            if reason != last:
                log.warning("making this slave's store goes on", extra={"fields": {"reason": reason}})
                last = reason
            await asyncio.sleep(self._pause_s)

    async def _once(self) -> bool:
        peer = await connected(await self._find_master())
        store: Bootstrap | None = None

        def begin(first: int) -> Bootstrap:
            nonlocal store
            store = self._make_store(self._path, self._file_size, first)
            self._begun = True
            log.info("making this slave's store", extra={"fields": {"master": peer.address, "from": first}})
            return store

        link = BootstrapLink(self._open_link(peer.is_local, asyncio.get_running_loop().time()), begin)
        farewell: tuple[bytes, ...] = ()
        try:
            peer.write(link.begin())
            await self._receive(peer, link)
            if not link.complete or store is None:
                return False
            await asyncio.to_thread(store.finish, bytes(link.snapshot), list(link.epochs))
            log.info("this slave's store is made", extra={"fields": {"master": peer.address}})
            return True
        except LinkClosed as closed:
            if link.unneeded:
                if self._begun:
                    begun = await asyncio.to_thread(self._make_store, self._path, self._file_size, 0)
                    await asyncio.to_thread(begun.abandon)
                return True
            farewell = tuple(closed.farewell)
            raise
        finally:
            if store is not None:
                store.close()
            await peer.close(farewell)

    async def _receive(self, peer: Peer, link: BootstrapLink) -> None:
        now = asyncio.get_running_loop().time
        while not link.complete:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    data = await peer.read()
            except TimeoutError:
                peer.write(link.report(now()))
                continue
            if not data:
                return
            peer.write(link.receive(data, now()))
            await peer.drained()
