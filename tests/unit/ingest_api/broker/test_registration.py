"""Under which id a broker is in its own name server's tables, over its changes of role."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ha_replicator.identity import BrokerRole
from ingest_api.broker.broker import Broker
from ingest_api.broker.settings import BrokerSettings, LimitSettings, ReplicationSettings, StoreSettings

ADDRESS = "http://127.0.0.1:1"


def _ids(broker: Broker) -> dict[int, str]:
    return {key: value for data in broker.tables.brokers() for key, value in data.addresses.items()}


def _broker(path: Path, replication: ReplicationSettings) -> Broker:
    store = StoreSettings(str(path), commitlog_file_size=1 << 20)
    limits = LimitSettings(disk_full_ratio=1.0)
    return Broker(
        BrokerSettings(store=store, limits=limits, replication=replication), ADDRESS, ("127.0.0.1", 1)
    )


@pytest.mark.parametrize(("broker_id", "then"), [(0, {}), (3, {3: ADDRESS})])
def test_a_master_that_steps_down_keeps_no_masters_place(
    tmp_path: Path, broker_id: int, then: dict[int, str]
) -> None:
    async def scenario() -> None:
        replication = ReplicationSettings(role="sync-master", ha_port=0, min_in_sync=1, broker_id=broker_id)
        broker = _broker(tmp_path, replication)
        try:
            assert _ids(broker) == {0: ADDRESS}
            broker.replication._step_down(77)  # noqa: SLF001 - what the listener calls
            assert _ids(broker) == then
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_a_promoted_slave_takes_the_masters_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = _broker(tmp_path, ReplicationSettings(role="slave", broker_id=2))
        try:
            await broker.start("127.0.0.1")
            assert _ids(broker) == {2: ADDRESS}
            await broker.replication.promote(BrokerRole.ASYNC_MASTER, force=True)
            assert _ids(broker) == {0: ADDRESS}
        finally:
            await broker.stop()

    asyncio.run(scenario())
