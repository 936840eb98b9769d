"""Sends while they wait for their flush: what they hold, what they count.

Contract: a send that waits holds its place and not its payload; FLUSH_DISK_TIMEOUT is counted once; a send
that need not wait does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from ingest_api.broker.admission import Admission
from ingest_api.broker.flush_wait import FlushWaiter, Outcome
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.send_request import SendRequest
from ingest_api.broker.send_service import SendService
from ingest_api.broker.settings import LimitSettings
from ingest_api.broker.thread_pools import BulkPool
from store_native import Store

REQUEST = SendRequest("t")
MESSAGE = b'{"body":"x"}'


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
        self.tell: Callable[[Outcome], None] | None = None

    def wait_send(self, end_offset: int) -> asyncio.Future[bool]:
        self.asked.set()
        return self.future

    def is_durable(self, end_offset: int) -> bool:
        return False

    def on_durable(self, end_offset: int, tell: Callable[[Outcome], None]) -> None:
        self.tell = tell


class Sending:
    """A send service over a real store and a flush that is held."""

    def __init__(self, path: Path) -> None:
        self.flush = HeldFlush()
        self.metrics = BrokerMetrics()
        limits = LimitSettings(inline_bytes=1_000)
        self.admission = Admission(limits, self.metrics)
        self.bulk = BulkPool(1, lambda waited_s: None)
        self.store = Store(str(path), commitlog_file_size=1 << 20, index_slots=100, index_entries=200)
        self.service = SendService(
            self.store, cast(FlushWaiter, self.flush), self.admission, self.bulk, self.metrics, limits
        )


def run(path: Path, scenario: Callable[[Sending], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        sending = Sending(path)
        try:
            await asyncio.wait_for(scenario(sending), 30)
        finally:
            sending.bulk.close()
            sending.store.close()

    asyncio.run(main())


@pytest.mark.parametrize("large", [False, True])
def test_a_send_that_waits_for_its_flush_does_not_hold_its_payload(tmp_path: Path, large: bool) -> None:
    async def scenario(sending: Sending) -> None:
        made = Payload(b'{"body":"%s"}' % (b"x" * (5_000 if large else 500)))
        stored, size, kept = [], len(made), [made]
        del made
        Payload.freed.clear()
        sent = sending.service.send(
            REQUEST, kept.pop if large else kept.pop(), size, on_stored=lambda: stored.append(True)
        )
        task = asyncio.ensure_future(sent)
        await sending.flush.asked.wait()
        assert Payload.freed == [size]
        assert stored == [True]
        assert sending.admission.inflight == 1
        sending.flush.future.set_result(True)
        assert (await task).status == "SEND_OK"
        assert sending.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_flush_that_takes_too_long_is_counted_once_on_either_path(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.flush.future.set_result(False)
        result = await sending.service.send(REQUEST, MESSAGE, len(MESSAGE))
        assert result.status == "FLUSH_DISK_TIMEOUT"
        assert sending.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 1}
        told: list[Outcome] = []
        appended = sending.service.append(REQUEST, MESSAGE)
        assert sending.service.on_durable(appended, told.append)
        assert sending.admission.inflight == 1
        assert sending.flush.tell is not None
        sending.flush.tell(False)
        assert told == [False]
        assert sending.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 2}
        assert sending.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_send_that_need_not_wait_does_not(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        assert (await sending.service.send(REQUEST, MESSAGE, len(MESSAGE), wait=False)).status == "SEND_OK"
        assert not sending.flush.asked.is_set()

    run(tmp_path, scenario)
