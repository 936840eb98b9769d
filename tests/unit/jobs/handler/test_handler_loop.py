"""The event loop of a handler: it runs between batches, whatever its handler does to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import pytest

from jobs.handler import handler_loop
from jobs.handler.handler_loop import HandlerLoop, HeldLoop
from jobs.handler.watchdog import EXIT_STATUS

DEADLINE_S = 30.0


@pytest.fixture
def loop() -> Iterator[HandlerLoop]:
    with closing(HandlerLoop()) as made:
        yield made


async def answer() -> str:
    return "here"


def test_what_a_call_has_begun_goes_on_when_nothing_is_asked_of_the_loop(loop: HandlerLoop) -> None:
    beats, kept = threading.Semaphore(0), list[asyncio.Task[None]]()

    async def beat() -> None:
        while True:
            beats.release()
            await asyncio.sleep(0.001)

    async def begin() -> None:
        kept.append(asyncio.create_task(beat()))

    loop.run(begin)
    for _ in range(20):
        assert beats.acquire(timeout=DEADLINE_S)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_it_outlives_a_task_that_exits(loop: HandlerLoop, error: type[BaseException]) -> None:
    kept: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise error

    async def begin() -> None:
        kept.append(asyncio.create_task(leave()))

    loop.run(begin)
    assert loop.run(answer) == "here"
    assert isinstance(kept[0].exception(), error)


def test_it_outlives_being_stopped_and_says_what_a_coroutine_raised(loop: HandlerLoop) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        raise LookupError("of the coroutine")

    for _ in range(3):
        with pytest.raises(LookupError):
            loop.run(stop)


def test_one_that_is_held_does_not_answer_and_does_not_hold_its_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler_loop, "CANCEL_S", 0.05)
    loop, held, go_on = HandlerLoop(), SimpleQueue[None](), threading.Event()
    (thread,) = (each for each in threading.enumerate() if each.name == "event-loop")
    assert loop.answers(DEADLINE_S)

    def hold() -> None:
        held.put(None)
        go_on.wait(DEADLINE_S)

    loop.call(hold)
    held.get(timeout=DEADLINE_S)
    assert not loop.answers(0.01)
    loop.close()
    assert thread.is_alive()
    go_on.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_what_still_runs_when_it_is_closed_is_cancelled_and_its_thread_ends() -> None:
    loop, ended = HandlerLoop(), list[str]()
    (thread,) = (each for each in threading.enumerate() if each.name == "event-loop")

    async def pages() -> Any:
        try:
            yield 1
            yield 2
        finally:
            ended.append("generator")

    async def wait() -> None:
        try:
            async for _ in pages():
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("task")

    kept: list[asyncio.Task[None]] = []

    async def begin() -> None:
        kept.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)

    loop.run(begin)
    loop.close()
    loop.close()
    assert not thread.is_alive()
    assert kept[0].cancelled()
    assert sorted(ended) == ["generator", "task"]


def test_a_handler_that_stops_it_while_it_is_closed_leaves_nothing_running() -> None:
    """Each of many times: the two may come in any order."""
    for _ in range(50):
        loop, kept = HandlerLoop(), list[asyncio.Task[None]]()

        async def stops() -> None:
            try:
                while True:
                    asyncio.get_running_loop().stop()
                    await asyncio.sleep(0)
            finally:
                await asyncio.sleep(0)

        async def begin(kept: list[asyncio.Task[None]] = kept) -> None:
            kept.append(asyncio.create_task(stops()))

        loop.run(begin)
        loop.close()
        assert kept[0].cancelled()


def ended_by(program: str) -> subprocess.CompletedProcess[str]:
    said = "import asyncio, threading, time\nfrom jobs.handler.handler_loop import HandlerLoop, HeldLoop\n"
    command = [sys.executable, "-c", said + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def test_a_loop_that_is_held_by_what_is_no_call_ends_its_process() -> None:
    ended = ended_by(
        "from jobs.handler import handler_loop; handler_loop.CANCEL_S = 0.1\n"
        "loop = HandlerLoop(); held = HeldLoop(loop, 0.2)\n"
        "for _ in range(10): held.look(); time.sleep(0.05)\n"
        "print('alive', flush=True); loop.call(threading.Event().wait)\n"
        "while True: held.look(); time.sleep(0.05)"
    )
    assert (ended.returncode, ended.stdout) == (EXIT_STATUS, "alive\n")
    assert "something holds its event loop" in ended.stderr


def test_a_loop_that_its_handler_has_broken_ends_its_process() -> None:
    """Whoever waits for it would wait for ever."""
    ended = ended_by(
        "import os\nloop = HandlerLoop()\n"
        "async def breaks(): os.close(asyncio.get_running_loop()._selector.fileno())\n"
        "loop.run(breaks); loop.run(lambda: asyncio.sleep(1))"
    )
    assert ended.returncode == EXIT_STATUS
    assert "Bad file descriptor" in ended.stderr


def test_a_held_loop_is_asked_once_until_it_answers() -> None:
    now = [0.0]

    class Held(HandlerLoop):
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def call(self, step: Any, *arguments: object) -> None:
            self.asked.append((step, arguments))

    loop = Held()
    held = HeldLoop(loop, 60.0, lambda: now[0])
    for now[0] in (1.0, 30.0, 65.0):
        held.look()
    ((step, arguments),) = loop.asked
    step(*arguments)
    held.look()
    assert len(loop.asked) == 2


def test_a_signal_may_close_it_while_somebody_waits_for_it() -> None:
    """Again and again: what waits holds no lock that the loop needs for its close."""
    ended = ended_by(
        "import os, random, signal\nfrom jobs.handler.loader import LoadedHandler\n"
        "from jobs.handler.opened_handler import OpenedHandler\n"
        "from jobs.handler.invocation import DEFAULT_HOST, invoke_here\n"
        "from tests.support.outcome_rows import POLICY, SCHEMA, message\nimport pyarrow as pa\n"
        "class Closes:\n"
        "    async def __call__(self, message): pass\n"
        "    async def close(self): self.closed = True\n"
        "batch = pa.RecordBatch.from_pylist([message(at) for at in range(20)], SCHEMA)\n"
        "batch = batch.append_column('attempt', pa.array([1] * 20, pa.int32()))\n"
        "for run in range(40):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        handler = OpenedHandler(LoadedHandler(Closes, False, is_async=True))\n"
        "        def end(*_):\n"
        "            signal.alarm(10); handler.close(); os._exit(0)\n"
        "        signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.signal(signal.SIGVTALRM, end)\n"
        "        signal.setitimer(signal.ITIMER_VIRTUAL, 0.005 + random.random() / 50)\n"
        "        while True: invoke_here(handler, batch, POLICY)\n"
        "    assert os.waitpid(pid, 0)[1] == 0, run\n"
    )
    assert ended.returncode == 0, ended.stderr
