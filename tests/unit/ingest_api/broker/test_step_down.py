"""A master that hears of a higher epoch: what it stored a moment ago is called safe by nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.send_request import PayloadKind, SendRequest
from ingest_api.broker.settings import (
    BrokerSettings,
    FlushMode,
    LimitSettings,
    ReplicationSettings,
    StoreSettings,
)
from store_native.errors import Unavailable

REQUEST = SendRequest("t", PayloadKind.JSON, None, None, False, None)


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("waits_before", [True, False])
def test_send_around_a_step_down_is_never_ok(tmp_path: Path, flush: FlushMode, waits_before: bool) -> None:
    async def scenario() -> None:
        settings = BrokerSettings(
            store=StoreSettings(str(tmp_path), flush=flush, commitlog_file_size=1 << 20),
            limits=LimitSettings(disk_full_ratio=1.0, sync_flush_timeout_s=20.0),
            replication=ReplicationSettings(role="sync-master", ha_port=0, min_in_sync=1),
        )
        broker = Broker(settings, "http://127.0.0.1:1", ("127.0.0.1", 1))
        try:
            appended = broker.send.append(REQUEST, b'{"body":"x"}')
            status: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            if waits_before:
                # A slave is in reach, so it waits for it.
                broker.flush_waiter.in_reach = lambda: True
                assert broker.send.on_durable(appended, status.set_result)
            broker.replication._step_down(77)  # noqa: SLF001 - what the listener calls
            if waits_before:
                assert await asyncio.wait_for(status, 30) == "SLAVE_NOT_AVAILABLE"
            else:
                # A worker's append, which came back only now.
                waiting = broker.flush_waiter.wait_send(appended.end_offset)
                assert waiting is not None
                assert await asyncio.wait_for(waiting, 30) is False
                assert broker.flush_waiter.shortfall(appended.end_offset) == "SLAVE_NOT_AVAILABLE"
            with pytest.raises(Unavailable, match="NOT_MASTER"):
                broker.send.check()
            assert broker.store.watermarks()[3] == 0
        finally:
            await broker.stop()

    asyncio.run(scenario())
