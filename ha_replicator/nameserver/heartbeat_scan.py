"""The scan for brokers that send no heartbeat any more.

Owns the task that drops them from the tables, and the line of the log that says so.

Invariants: no answer depends on it: a route drops silent brokers first, by itself. The scan is for those that
nobody asks for.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ha_replicator.nameserver.route_tables import RouteTables

SCAN_EVERY_S = 5.0

log = logging.getLogger("lakemq.nameserver")


class HeartbeatScan:
    """Drops silent brokers.

    Args:
        tables: Where brokers are registered.
        every_s: Seconds between two rounds.
    """

    def __init__(self, tables: RouteTables, every_s: float = SCAN_EVERY_S) -> None:
        self._tables = tables
        self._every_s = every_s
        self._scanning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins; the first round is in ``every_s``."""
        self._scanning = asyncio.get_running_loop().create_task(self._scan())

    async def stop(self) -> None:
        """Ends the task; again, or before the start, does nothing."""
        scanning, self._scanning = self._scanning, None
        if scanning is not None:
            scanning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scanning

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for name, broker_id in self._tables.expire():
                log.warning("broker sent no heartbeat", extra={"fields": {"broker": name, "id": broker_id}})
