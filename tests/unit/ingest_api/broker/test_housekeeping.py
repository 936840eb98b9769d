"""What a broker finds when it looks after its disk, and what its log says of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.settings import BrokerSettings, LimitSettings, StoreSettings
from store_native.errors import Unavailable
from tests.support.waiting import wait_until_async


def test_a_disk_that_has_space_again_is_found_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        settings = BrokerSettings(
            store=StoreSettings(str(tmp_path), commitlog_file_size=1 << 20),
            limits=LimitSettings(disk_full_ratio=1.0),
        )
        broker = Broker(settings, "core://here", ("127.0.0.1", 9), look_every_s=0.001)
        try:
            broker.admission.set_disk_used(1.5)  # what its first round finds no more
            with pytest.raises(Unavailable, match="full"):
                broker.send.check()
            await wait_until_async(lambda: "disk has space again" in caplog.messages)
            broker.send.check()
        finally:
            await broker.stop()

    with caplog.at_level(logging.WARNING, "lakemq.broker"):
        asyncio.run(scenario())
    assert caplog.messages.count("disk has space again") == 1
