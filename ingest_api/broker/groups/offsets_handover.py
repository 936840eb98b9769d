"""Gives offsets that were kept at a slave to its master, or to itself once it is the master.

Owns when that is tried, and the request to the master.

Invariants: nothing is forgotten that no master has taken or refused for good; one round at a time.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from urllib.parse import quote

from ha_replicator.http_question import ask
from ingest_api.broker.groups.offsets_aside import KeptOffset, OffsetsAside, to_json
from lakemq.tls.trust import Trust
from store_native.errors import LakeMQError, Unavailable

log = logging.getLogger("lakemq.replication")

HERE = ""
"""Where the master is when this broker is it."""
PAUSE_S = 5.0
ROWS_PER_REQUEST = 1_000

Take = Callable[[str, Sequence[KeptOffset]], Awaitable[object]]
"""(group, offsets): this broker, a master, commits them."""


class OffsetsHandover:
    """Watches for a master.

    Args:
        aside: What is kept.
        take: Commits here.
        master: The endpoint of the master that this slave follows; HERE when this broker is the master;
            None while there is none.
        trust: Whose certificates are believed.
        pause_s: Before a round that failed is tried again.
    """

    def __init__(
        self,
        aside: OffsetsAside,
        take: Take,
        master: Callable[[], str | None],
        trust: Trust,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._aside = aside
        self._take = take
        self._master = master
        self._trust = trust
        self._pause_s = pause_s
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._failure: str | None = None

    def start(self) -> None:
        """Begins to watch."""
        self._changed.set()
        self._running = asyncio.get_running_loop().create_task(self._run())

    def master_changed(self) -> None:
        """Says that there may be a master now."""
        if self._aside.groups():
            self._changed.set()

    async def stop(self) -> None:
        """Ends; what was not given is kept."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for group in self._aside.groups():
                try:
                    await self._give(group)
                except (LakeMQError, OSError, TimeoutError, ValueError) as error:
                    self._say(group, str(error) or type(error).__name__)
                    asyncio.get_running_loop().call_later(self._pause_s, self._changed.set)
                    break
            else:
                self._failure = None

    def _say(self, group: str, reason: str) -> None:
        """Says once why offsets were not taken."""
        if reason != self._failure:
            self._failure = reason
            fields = {"group": group, "reason": reason}
            log.warning("offsets kept for the master were not taken yet", extra={"fields": fields})

    async def _give(self, group: str) -> None:
        for part in _parts(self._aside.of(group)):
            master = self._master()
            if master is None:
                return  # its coming is told
            refused = await (
                self._give_here(group, part) if master == HERE else self._offer(master, group, part)
            )
            if refused is not None:
                fields = {"group": group, "offsets": len(part), "reason": refused}
                log.warning("offsets kept for the master are given up", extra={"fields": fields})
            await self._aside.drop(group, part)

    async def _give_here(self, group: str, part: Sequence[KeptOffset]) -> str | None:
        try:
            await self._take(group, part)
        except Unavailable:
            raise
        except LakeMQError as error:
            return str(error)
        return None

    async def _offer(self, master: str, group: str, part: Sequence[KeptOffset]) -> str | None:
        """Offers offsets to a master; returns its refusal, None when it has decided on each of them.

        Raises:
            Unavailable: It refused for now.
            OSError, TimeoutError, ValueError: As `ask`.
        """
        body = json.dumps({"offsets": [to_json(kept) for kept in part]}).encode()
        path = f"/api/v1/groups/{quote(group, safe='')}/offsets/offer"
        answer = await ask(master, path, method="POST", body=body, trust=self._trust)
        if answer.status < 300:
            return None
        detail = f"{answer.content.get('code')}: {answer.content.get('detail')}"
        if answer.status >= 500 or answer.status in (408, 429):
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{master}: {detail}")
        return detail


def _parts(offsets: Sequence[KeptOffset]) -> Iterator[Sequence[KeptOffset]]:
    for begin in range(0, len(offsets), ROWS_PER_REQUEST):
        yield offsets[begin : begin + ROWS_PER_REQUEST]
