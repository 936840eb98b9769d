"""What the jobs of groups say of their batches counts once, and only from the driver that holds the group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.groups.handled_batches import HandledBatches
from ingest_api.broker.settings import BrokerSettings, StoreSettings
from store_native.errors import InvalidRequest


def with_broker(path: Path, scenario: Callable[[Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = Broker(
            BrokerSettings(store=StoreSettings(path=str(path))), "http://127.0.0.1:1", ("127.0.0.1", 1)
        )
        try:
            await broker.groups.put("g")
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


def test_batches_are_counted_by_verdict_and_time_and_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batches = HandledBatches(broker.store, broker.leases, clock=iter((100.0, 200.0)).__next__)
        batches.add("g", "q.1", {"ACK": 5, "RETRY": 1}, 1.5, None)
        batches.add("g", "q.1", {"ACK": 5, "RETRY": 1}, 1.5, None)
        batches.add("g", "q.2", {"ACK": 2, "DEAD": 1}, 40.0, None)
        counts = batches.by_group()["g"]
        assert counts.messages == {"ACK": 7, "RETRY": 1, "DEAD": 1}
        assert (counts.seconds.total, sum(counts.seconds.counts), counts.at) == (41.5, 2, 200.0)

    with_broker(tmp_path, scenario)


def test_a_driver_that_lost_the_group_is_not_counted(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batches = broker.handled_batches
        epoch, _ = broker.leases.acquire("g", "driver", 60_000)
        for stale in (None, epoch + 1):
            with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
                batches.add("g", "q.1", {"ACK": 1}, 1, stale)
        assert batches.by_group() == {}
        batches.add("g", "q.1", {"ACK": 1}, 1, epoch)
        assert batches.by_group()["g"].messages == {"ACK": 1}

    with_broker(tmp_path, scenario)


def test_a_group_that_is_gone_is_refused_and_forgotten(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batches = broker.handled_batches
        with pytest.raises(InvalidRequest, match="GROUP_NOT_EXIST"):
            batches.add("nobody", "q.1", {"ACK": 1}, 1, None)
        batches.add("g", "q.1", {"ACK": 1}, 1, None)
        assert (await broker.groups.delete("g")).settled
        assert batches.by_group() == {}
        await broker.groups.put("g")
        assert batches.by_group() == {}

    with_broker(tmp_path, scenario)
