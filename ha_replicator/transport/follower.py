"""Keeps a slave connected to its master.

Owns the one connection to the master, finding it and trying again; its link decides what is said.

Invariants: there is one connection at a time; what fails is tried again after a pause that grows to
`LONGEST_PAUSE_S` and has chance in it, for good.

Threads: the event loop; a cut, which copies files, and waiting for the flush run on a thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial

from ha_replicator.identity import LinkClosed
from ha_replicator.link_place import LinkPlace
from ha_replicator.links import LinkToMaster
from ha_replicator.log import ReplicatedLog
from ha_replicator.transport.peer import Peer, connected
from ha_replicator.transport.wakeups import Wakeup, Wakeups
from store_native.errors import LakeMQError

log = logging.getLogger("lakemq.replication")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LOG_REFUSED = frozenset({"LOG_DIVERGED", "LOG_EXPIRED"})
"""What says that this log is not, or is perhaps not, the master's."""
LASTING_S = 10.0
"""A connection that ended sooner counts as failed: what ends it at once would do so again and again."""


class Follower:
    """Follows a master until it is cancelled.

    Args:
        make_link: Makes a connection's link; receives whether the master is on this machine, and the time.
        replicated_log: This broker's.
        find_master: Says where the master takes slaves; raises LakeMQError or OSError when nobody knows.
        wakeups: Say when the log moved.
        on_change: Called when something of :attr:`link` changed.
        pause: Waits between two tries; given in tests.

    Attributes:
        link: The connection there is now.
        last_failure: Why there is none.
        refusal: Why the log is not the master's, if that was said since it last followed.
    """

    def __init__(
        self,
        make_link: Callable[[bool, float], LinkToMaster],
        replicated_log: ReplicatedLog,
        find_master: Callable[[], Awaitable[LinkPlace]],
        wakeups: Wakeups,
        *,
        on_change: Callable[[], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._make_link = make_link
        self._log = replicated_log
        self._find_master = find_master
        self._wakeups = wakeups
        self._on_change = on_change
        self._pause = pause
        self._chance = random.SystemRandom()
        self.link: LinkToMaster | None = None
        self.last_failure: str | None = None
        self.refusal: str | None = None

    async def run(self) -> None:
        """Follows; returns only by being cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                followed = await self._follow_once()
                reason = LinkClosed("CONNECTION_LOST", "the master closed the connection")
            except LinkClosed as closed:
                followed, reason = self.link is not None and self.link.following, closed
                if closed.code in LOG_REFUSED:
                    self.refusal = str(closed)
            except (LakeMQError, OSError, TimeoutError) as error:
                followed = self.link is not None and self.link.following
                reason = LinkClosed("MASTER_UNREACHABLE", str(error) or type(error).__name__)
            except Exception as error:
                # A defect; a slave that follows no more would be another.
                log.exception("following the master failed")
                followed, reason = False, LinkClosed("SYSTEM_ERROR", repr(error))
            finally:
                self.link = None
                self._on_change()
            if str(reason) != self.last_failure or followed:
                fields = {"code": reason.code, "reason": reason.detail}
                log.warning("this slave does not follow its master", extra={"fields": fields})
            self.last_failure = str(reason)
            lasted = followed and asyncio.get_running_loop().time() - begun >= LASTING_S
            pause = FIRST_PAUSE_S if lasted else min(pause * 2, LONGEST_PAUSE_S)
            await self._pause(pause * self._chance.uniform(0.5, 1.0))

    async def _follow_once(self) -> bool:
        """Follows until the connection ends; returns whether it got as far as following."""
        peer = await connected(await self._find_master())
        farewell: tuple[bytes, ...] = ()
        try:
            return await self._follow(peer)
        except LinkClosed as closed:
            farewell = tuple(closed.farewell)
            raise
        finally:
            await peer.close(farewell)

    async def _follow(self, peer: Peer) -> bool:
        now = asyncio.get_running_loop().time
        wakeup = self._wakeups.add(lambda: True)
        reading: asyncio.Task[None] | None = None
        try:
            await self._all_flushed(wakeup)
            link = self.link = self._make_link(peer.is_local, now())
            wakeup.is_due = link.is_due
            peer.write(link.begin())
            reading = asyncio.create_task(self._read(peer, link, wakeup))

            def report() -> bool:
                if peer.is_over:
                    return False
                peer.write(link.report(now()))
                return not peer.is_full

            wakeup.at_once = report
            while not (reading.done() or peer.is_over):
                peer.write(link.report(now()))
                await peer.drained()
                await wakeup.wait(link.next_deadline)
            await reading
            return link.following
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            self._wakeups.discard(wakeup)

    async def _all_flushed(self, wakeup: Wakeup) -> None:
        """Waits until what is appended is flushed: only that can be compared with the master's log."""
        while True:
            _, appended, flushed, _ = self._log.marks()
            if flushed >= appended:
                return
            await wakeup.wait(_never)

    async def _read(self, peer: Peer, link: LinkToMaster, wakeup: Wakeup) -> None:
        now = asyncio.get_running_loop().time
        given = False
        try:
            while data := await peer.read():
                following = link.following
                self._take(peer, link, data)
                if link.cut_at is not None:
                    try:
                        await asyncio.to_thread(self._log.truncate_to, link.cut_at)
                        peer.write(link.cut(now()))
                    except LakeMQError as error:
                        raise LinkClosed(error.code, error.detail) from error
                if link.following and not following:
                    self.last_failure = self.refusal = None
                    fields = {"master": peer.address, "epoch": link.epoch, "from": self._log.marks()[1]}
                    log.info("this slave follows its master", extra={"fields": fields})
                    wakeup.set()
                    self._on_change()
                # Only its welcome has a link cut the log, which is over then.
                given = given or (link.following and peer.give_to(partial(self._take, peer, link)))
        finally:
            wakeup.set()

    def _take(self, peer: Peer, link: LinkToMaster, data: bytes) -> None:
        try:
            peer.write(link.receive(data, asyncio.get_running_loop().time()))
        except LakeMQError as error:
            raise LinkClosed(error.code, error.detail) from error
        self._on_change()


def _never() -> float:
    return float("inf")
