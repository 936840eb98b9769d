"""The event loop of a handler: it runs between batches, whatever its handler does to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing

import pytest

from jobs.handler import handler_loop
from jobs.handler.handler_loop import HandlerLoop

DEADLINE_S = 30.0


@pytest.fixture
def loop() -> Iterator[HandlerLoop]:
    with closing(HandlerLoop()) as made:
        yield made


def test_what_a_call_has_begun_goes_on_when_nothing_is_asked_of_the_loop(loop: HandlerLoop) -> None:
    beats, kept = threading.Semaphore(0), list[asyncio.Task[None]]()

    async def beat() -> None:
        while True:
            beats.release()
            await asyncio.sleep(0.001)

    async def begin() -> None:
        kept.append(asyncio.create_task(beat()))

    async def end() -> None:
        kept[0].cancel()

    loop.begin(begin()).result(DEADLINE_S)
    for _ in range(20):
        assert beats.acquire(timeout=DEADLINE_S)
    loop.begin(end()).result(DEADLINE_S)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_it_outlives_a_task_that_exits(loop: HandlerLoop, error: type[BaseException]) -> None:
    kept: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise error

    async def begin() -> None:
        kept.append(asyncio.create_task(leave()))

    async def answer() -> None:
        assert isinstance(kept[0].exception(), error)

    loop.begin(begin()).result(DEADLINE_S)
    loop.begin(answer()).result(DEADLINE_S)


def test_it_outlives_being_stopped(loop: HandlerLoop) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()

    for _ in range(3):
        loop.begin(stop()).result(DEADLINE_S)


def test_one_that_is_held_does_not_hold_its_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_loop, "CANCEL_S", 0.05)
    loop, held, go_on = HandlerLoop(), Future[None](), threading.Event()

    async def hold() -> None:
        held.set_result(None)
        go_on.wait(DEADLINE_S)

    over = loop.begin(hold())
    held.result(DEADLINE_S)
    loop.close()
    assert not over.done()
    go_on.set()
    over.result(DEADLINE_S)


def test_it_may_be_closed_twice_and_ends_its_thread() -> None:
    loop = HandlerLoop()
    (thread,) = (each for each in threading.enumerate() if each.name == "event-loop")
    loop.close()
    loop.close()
    assert not thread.is_alive()
