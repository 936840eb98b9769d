"""Waiting for watermarks, on a real store: nobody is answered too early, nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ingest_api.broker.flush_wait import FlushWaiter
from ingest_api.broker.pull_hold import PullHold
from ingest_api.broker.store_events import StoreEvents
from store_native import Store
from tests.support.waiting import wait_until_async


class Waiting:
    """A store with everything that waits on it."""

    def __init__(
        self, path: Path, *, sync_flush: bool = True, timeout_s: float = 5.0, **options: Any
    ) -> None:
        self.store = Store(
            str(path),
            flush="sync" if sync_flush else "async",
            commitlog_file_size=1 << 20,
            consumequeue_file_entries=3_000,
            index_slots=1_000,
            index_entries=4_000,
            **options,
        )
        loop = asyncio.get_running_loop()
        self.progress = StoreEvents(self.store, loop)
        self.flush_waiter = FlushWaiter(
            self.store, self.progress, loop, sync_flush=sync_flush, timeout_s=timeout_s
        )
        self.pull_hold = PullHold(self.store, self.progress, loop)

    def close(self) -> None:
        self.flush_waiter.close()
        self.progress.close()
        self.store.close()


def run(path: Path, scenario: Callable[[Waiting], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        waiting = Waiting(path, **options)
        try:
            await asyncio.wait_for(scenario(waiting), 20)
        finally:
            waiting.close()

    asyncio.run(main())


def test_a_send_is_answered_once_its_bytes_are_flushed(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        for n in range(1, 50):
            appended = waiting.store.append_message("t", b"x" * n)
            future = waiting.flush_waiter.wait_send(appended.end_offset)
            assert future is None or await future
            assert waiting.store.watermarks()[1] >= appended.end_offset

    run(tmp_path, scenario)


def test_one_flush_answers_every_send_below_it(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        ends = [waiting.store.append_message("t", b"x").end_offset for _ in range(500)]
        futures = [waiting.flush_waiter.wait_send(end) for end in ends]
        assert all([future is None or await future for future in futures])
        assert waiting.flush_waiter.waiting == 0

    run(tmp_path, scenario)


def test_sends_that_register_out_of_order_are_all_answered(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        ends = [waiting.store.append_message("t", b"x").end_offset for _ in range(20)]
        futures = [waiting.flush_waiter.wait_send(end) for end in reversed(ends)]
        assert all([future is None or await future for future in futures])

    run(tmp_path, scenario)


def test_an_asynchronous_flush_answers_at_once(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        assert waiting.flush_waiter.wait_send(waiting.store.append_message("t", b"x").end_offset) is None

    run(tmp_path, scenario, sync_flush=False)


def test_a_change_is_answered_when_every_reader_sees_it(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        for n in range(10):
            future = waiting.flush_waiter.wait_change(
                waiting.store.put_topic(f"t{n}", read_queue_nums=1, write_queue_nums=1)
            )
            assert future is None or await future
            assert waiting.store.topic_json(f"t{n}") is not None

    run(tmp_path, scenario)


def test_a_send_that_waits_too_long_gets_its_status_and_leaves_the_queue(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        # Nothing will ever be stored there.
        futures = [waiting.flush_waiter.wait_send(1 << 40), waiting.flush_waiter.wait_send((1 << 40) + 1)]
        assert [await future for future in futures if future is not None] == [False, False]
        assert waiting.flush_waiter.waiting == 0

    run(tmp_path, scenario, timeout_s=0.05)


def test_a_client_that_left_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        ends = [waiting.store.append_message("t", b"x").end_offset for _ in range(3)]
        futures = [waiting.flush_waiter.wait_send(end) for end in ends]
        if futures[0] is not None:
            futures[0].cancel()
        assert all([future is None or await future for future in futures[1:]])

    run(tmp_path, scenario)


def test_a_message_wakes_the_pull_of_its_queue_only(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        waiting.store.append_message("t", b"x", queue_id=0)
        first, second = waiting.pull_hold.wait_for(("t", 0)), waiting.pull_hold.wait_for(("t", 0))
        other = waiting.pull_hold.wait_for(("t", 1))
        waiting.store.append_message("t", b"x", queue_id=0)
        await asyncio.gather(first, second)
        assert not other.done()
        assert waiting.pull_hold.waiting == 1
        waiting.pull_hold.forget(("t", 1), other)
        assert waiting.pull_hold.waiting == 0

    run(tmp_path, scenario)


def test_closing_wakes_every_pull_and_holds_no_new_one(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        waiting.store.append_message("t", b"x", queue_id=0)
        held = waiting.pull_hold.wait_for(("t", 0))
        waiting.pull_hold.close()
        await held
        await waiting.pull_hold.wait_for(("t", 0))

    run(tmp_path, scenario)


def test_nobody_listens_when_nobody_waits(tmp_path: Path) -> None:
    async def scenario(waiting: Waiting) -> None:
        future = waiting.flush_waiter.wait_send(waiting.store.append_message("t", b"x").end_offset)
        assert future is None or await future

        def nobody_listens() -> bool:
            waiting.store.append_message("t", b"x")  # the next move finds nobody waiting
            return not waiting.progress.listening

        await wait_until_async(nobody_listens)

    run(tmp_path, scenario)
