"""Sends over a real store whose flush ends when the test says so, and payloads that say when they are freed.

Owns the store and the pool of large appends; the flush waiter is the only thing that is not the broker's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, cast

from ingest_api.broker.admission import Admission
from ingest_api.broker.flush_wait import FlushWaiter, Outcome
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.ordered_sends import OrderedSends
from ingest_api.broker.send_service import SendService
from ingest_api.broker.settings import LimitSettings
from ingest_api.broker.thread_pools import BulkPool
from store_native import Store


class Payload(bytes):
    """Bytes that say when nobody holds them any more."""

    freed: ClassVar[list[int]] = []

    def __del__(self) -> None:
        Payload.freed.append(len(self))


class HeldFlush:
    """A flush that ends when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.notify: Callable[[Outcome], None] | None = None
        self.ends: list[int] = []  # what it was asked about
        self.soon = 0  # how often it was to come soon

    def flush_soon(self) -> None:
        """Counts."""
        self.soon += 1

    def wait_send(self, end_offset: int) -> asyncio.Future[bool]:
        """Says that somebody waits."""
        self.ends.append(end_offset)
        self.asked.set()
        return self.future

    def is_durable(self, end_offset: int) -> bool:
        """Nothing is."""
        self.ends.append(end_offset)
        return False

    def on_durable(self, end_offset: int, notify: Callable[[Outcome], None]) -> None:
        """Keeps who waits for it."""
        self.ends.append(end_offset)
        self.notify = notify

    def shortfall(self, end_offset: int) -> str:
        """It is always the disk."""
        return "FLUSH_DISK_TIMEOUT"


class HeldSends:
    """A send service over a real store and a flush that is held; above 1,000 bytes a payload is large."""

    def __init__(self, path: Path) -> None:
        self.flush = HeldFlush()
        self.metrics = BrokerMetrics()
        self.limits = LimitSettings(inline_bytes=1_000)
        self.admission = Admission(self.limits, self.metrics)
        self.bulk = BulkPool(1, lambda waited_s: None)
        self.store = Store(str(path), commitlog_file_size=1 << 20, index_slots=100, index_entries=200)
        self.service = SendService(
            self.store,
            cast(FlushWaiter, self.flush),
            self.admission,
            self.bulk,
            self.metrics,
            self.limits,
            OrderedSends(self.store, "broker"),
        )


def run(path: Path, scenario: Callable[[HeldSends], Coroutine[Any, Any, None]]) -> None:
    """Runs a scenario on an empty store."""

    async def main() -> None:
        sends = HeldSends(path)
        try:
            await asyncio.wait_for(scenario(sends), 30)
        finally:
            sends.bulk.close()
            sends.store.close()

    asyncio.run(main())
