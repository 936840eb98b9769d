"""A broker that nobody asks for is dropped when its heartbeats end, and the log says so."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ha_replicator.nameserver import BrokerRegistration, HeartbeatScan, RouteTables
from tests.support.waiting import wait_until_async


def test_a_silent_broker_is_dropped_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    tables = RouteTables(heartbeat_timeout_s=120, clock=lambda: now)
    for name, pinned in (("here", True), ("silent", False)):
        tables.register(BrokerRegistration("c", name, 0, f"http://{name}:1", "v", {}), pinned=pinned)

    async def scenario() -> None:
        nonlocal now
        scan = HeartbeatScan(tables, every_s=0.001)
        await scan.stop()  # before its start: nothing to end
        scan.start()
        now = 120.5
        await wait_until_async(lambda: len(tables.brokers()) == 1)
        await scan.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "it has ended, and not only been told to"
        await scan.stop()

    with caplog.at_level(logging.WARNING, "lakemq.nameserver"):
        asyncio.run(scenario())
    assert [data.broker_name for data in tables.brokers()] == ["here"]
    assert [record.getMessage() for record in caplog.records] == ["broker sent no heartbeat"]
    assert vars(caplog.records[0])["fields"] == {"broker": "silent", "id": 0}
