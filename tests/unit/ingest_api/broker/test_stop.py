"""The order of a broker's stop: who waits is answered, what runs ends, and only then the store closes.

Contract: a held pull ends, a large append that runs is stored, a read that runs is answered, a wait for a
flush that will not come is failed, nobody listens to the store; then the store closes, once. What the store
says last is in the broker's log, also where it could not close cleanly.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.flush_wait import Outcome
from ingest_api.broker.pull_service import PullRequest
from ingest_api.broker.send_request import SendRequest
from ingest_api.broker.settings import BrokerSettings, LimitSettings, StoreSettings
from store_native import Store
from store_native.errors import Closed, LakeMQError, Unavailable
from tests.support.waiting import wait_until, wait_until_async

TOPIC = "orders"
MIB = 1 << 20


class WatchedStore:
    """The store, which notes what has happened by the time it closes."""

    def __init__(self, broker: Broker, happened: list[str]) -> None:
        self._store = broker.store
        self._events = broker.store_events
        self._happened = happened
        self.closing = threading.Event()
        self.before_close: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        self.before_close.append(sorted(self._happened))
        assert not self._events.listening
        self.closing.set()
        self._store.close()


def settings(path: Path) -> BrokerSettings:
    return BrokerSettings(
        store=StoreSettings(
            path=str(path), commitlog_file_size=4 * MIB, index_slots=1_000, index_entries=4_000
        ),
        limits=LimitSettings(bulk_threads=1, disk_full_ratio=1),
    )


def test_waiting_sends_are_answered_and_what_runs_ends_before_the_store_closes(tmp_path: Path) -> None:
    happened: list[str] = []
    started, may_end = threading.Event(), threading.Event()

    async def scenario() -> list[list[str]]:
        broker = Broker(settings(tmp_path), "core://here", ("127.0.0.1", 9))
        store = WatchedStore(broker, happened)
        broker.store = cast(Store, store)
        loop = asyncio.get_running_loop()

        def made_late() -> bytes:
            started.set()
            assert may_end.wait(30)
            happened.append("large append made")
            return b'{"body":"late"}'

        def reads_are_refused() -> bool:
            try:
                asyncio.run_coroutine_threadsafe(broker.reads.run(int), loop).result(30)
            except RuntimeError:  # the pool is closing
                return True
            return False

        def read() -> None:
            assert may_end.wait(30)
            # A store that closed under a read would do it now.
            wait_until(lambda: store.closing.is_set() or reads_are_refused())
            happened.append("read done")

        def notified(outcome: Outcome) -> None:
            assert isinstance(outcome, Closed)
            happened.append("waiter failed")

        async def consumer_left() -> None:
            await asyncio.Event().wait()

        async def pull() -> None:
            request = PullRequest(TOPIC, 0, 0, False, 100, MIB, 50_000, "*", "", None, None)
            assert (await broker.pull.pull(request, consumer_left))[0].status == "NO_NEW_MSG"
            happened.append("pull ended")

        await broker.topics.put(TOPIC, read_queue_nums=1, write_queue_nums=1)
        pulling = loop.create_task(pull())
        await wait_until_async(lambda: broker.pull_hold.waiting == 1)
        large = loop.create_task(broker.send.send(SendRequest(TOPIC), made_late, MIB))
        reading = loop.create_task(broker.reads.run(read))
        await loop.run_in_executor(None, started.wait, 30)
        broker.flush_waiter.on_durable(1 << 40, notified)
        stopping = loop.create_task(broker.stop())
        await wait_until_async(lambda: broker.admission.closing)
        with pytest.raises(Unavailable, match="SERVICE_NOT_AVAILABLE"):
            broker.send.check()
        assert store.before_close == [], "the store closes under what runs"
        may_end.set()
        await stopping
        await asyncio.gather(pulling, reading)
        (stored,) = await asyncio.gather(large, return_exceptions=True)
        # It is in the log; a flush that came too late for it is not waited for.
        assert getattr(stored, "status", None) == "SEND_OK" or getattr(stored, "code", None) == "STORE_CLOSED"
        return store.before_close

    ((*before,),) = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert before == ["large append made", "pull ended", "read done", "waiter failed"]
    again = Store(str(tmp_path), commitlog_file_size=4 * MIB, index_slots=1_000, index_entries=4_000)
    assert again.recovery["clean"] is True
    assert again.queues(TOPIC)[0][2] == 1, "what was appended during the stop is there"
    again.close()


def test_what_the_store_says_while_it_fails_to_close_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[tuple[str, str]]:
        broker = Broker(settings(tmp_path), "core://here", ("127.0.0.1", 9))
        shutil.rmtree(tmp_path / "config")
        (tmp_path / "config").write_text("no directory")
        await broker.topics.put(TOPIC, read_queue_nums=1, write_queue_nums=1)
        await broker.stop()
        assert isinstance(broker.stop_failure, LakeMQError)
        assert "config" in str(broker.stop_failure)
        return list(broker.store.take_events())

    with caplog.at_level(logging.INFO, logger="lakemq.broker"):
        left = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert left == []
    lines = [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"]
    assert any(line.startswith("store: the files under config/ are behind") for line in lines), lines
    assert "the store is not closed, its next start recovers it" in lines
    assert "store closed" not in caplog.text
