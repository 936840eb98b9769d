"""Several calls of a handler at a time: threads, coroutines, classes, and what is not thread-safe."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.handler.call_order import CallOrder
from jobs.handler.invocation import HandlerHost, invoke_here
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.results import HandlerResults
from jobs.handler.row_calls import RowCalls
from jobs.handler.verdicts import Outcome
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Outgoing, TableRow, Verdict
from store_native.errors import InvalidRequest

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)
HANDLERS = "tests.unit.jobs.handler.handlers_that_end"
DEADLINE_S = 30.0


def batch(bodies: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})


def numbered(rows: int) -> pa.RecordBatch:
    return batch([b"%d" % row for row in range(rows)])


def handled(loaded: LoadedHandler, rows: int, **host: Any) -> HandlerResults:
    with closing(OpenedHandler(loaded)) as handler:
        return invoke_here(handler, numbered(rows), POLICY, host=HandlerHost(**host))


def opened(name: str) -> OpenedHandler:
    return OpenedHandler(HandlerTarget(f"{HANDLERS}:{name}").load())


@pytest.mark.parametrize("concurrency", [2, 20])
def test_so_many_calls_are_made_at_a_time(concurrency: int) -> None:
    together = threading.Barrier(concurrency)

    def handle(message: Any) -> None:
        together.wait(DEADLINE_S)  # returns only once all the others wait too

    assert handled(LoadedHandler(handle, False), 3 * concurrency, concurrency=concurrency).verdict is None


def test_no_more_calls_are_made_at_a_time() -> None:
    under_way, most, guard = [0], [0], threading.Lock()
    full = threading.Event()

    def handle(message: Any) -> None:
        with guard:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            if under_way[0] == 3:
                full.set()
        assert full.wait(DEADLINE_S)
        with guard:
            under_way[0] -= 1

    assert handled(LoadedHandler(handle, False), 60, concurrency=3).verdict is None
    assert most == [3]


def test_each_verdict_is_its_own_messages_whichever_call_ends_first() -> None:
    second = threading.Event()

    def handle(message: Any) -> Verdict | None:
        number = int(message.body)
        if number == 0:
            assert second.wait(DEADLINE_S)
            return Verdict.dead("the first")
        if number == 1:
            second.set()
            raise ValueError("the second")
        return None

    result = handled(LoadedHandler(handle, False), 4, concurrency=4)
    assert result.verdict is not None
    assert result.verdict.to_pylist() == ["DEAD", "RETRY", "ACK", "ACK"]
    assert result.reason is not None
    assert result.reason.to_pylist() == ["the first", None, None, None]
    assert result.error_text is not None
    assert result.error_text.to_pylist() == [None, "the second", None, None]


def test_what_is_not_thread_safe_is_called_on_the_tasks_own_thread() -> None:
    result = invoke_here(opened("NotThreadSafe"), numbered(50), POLICY, host=HandlerHost(concurrency=20))
    assert result.verdict is None, result.error_text


def test_coroutines_run_on_one_loop_so_many_at_a_time() -> None:
    most, under_way = [0], [0]
    four = asyncio.Barrier(4)

    async def handle(message: Any) -> Verdict | None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.wait_for(four.wait(), DEADLINE_S)
        under_way[0] -= 1
        return Verdict.dead("odd") if int(message.body) % 2 else None

    loaded = LoadedHandler(handle, False, is_async=True)
    result = handled(loaded, 12, concurrency=4)
    assert result.verdict is not None
    assert result.verdict.to_pylist() == ["ACK", "DEAD"] * 6
    assert most == [4]


@pytest.mark.parametrize("name", ["OpenedOnLoop", "PlainlyOpenedOnLoop"])
def test_the_loop_is_the_same_for_open_every_batch_and_close(name: str) -> None:
    with closing(opened(name)) as handler:
        for _ in range(2):
            assert invoke_here(handler, numbered(5), POLICY).verdict is None
        kind = type(handler.call)
    assert getattr(kind, "closed", False)


def test_one_that_does_not_close_leaves_no_thread() -> None:
    handler, before = opened("DoesNotClose"), threading.active_count()
    with pytest.raises(ConnectionError, match="no pool"):
        handler.close()
    assert threading.active_count() == before - 1


def test_one_that_does_not_open_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ConnectionError, match="no pool"):
        opened("DoesNotOpen")
    assert threading.active_count() == before


@pytest.mark.parametrize(("cancelled", "made"), [(2, True), (250, False)])
def test_tasks_that_are_cancelled_before_their_calls_are_begun_anew(cancelled: int, made: bool) -> None:
    """As a handler's own do that cancel all tasks of the loop; not for ever."""
    left = [cancelled]

    async def handle(message: Any) -> None:
        await asyncio.sleep(0)

    def factory(loop: Any, coroutine: Any, **how: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **how)
        left[0] -= 1
        if left[0] >= 0:
            task.cancel()
        return task

    async def take() -> None:
        asyncio.get_running_loop().set_task_factory(factory)

    with closing(OpenedHandler(LoadedHandler(handle, False, is_async=True))) as handler:
        assert handler.loop is not None
        handler.loop.run(take)
        calls = RowCalls(handler, POLICY, 2, 60.0)
        if made:
            assert calls.run(numbered(6), range(6)).verdict is None
        else:
            with pytest.raises(RuntimeError, match="cancels again and again"):
                calls.run(numbered(6), range(6))


def test_a_coroutine_that_takes_too_long_is_cancelled_and_its_message_comes_again() -> None:
    ended: list[str] = []

    async def handle(message: Any) -> None:
        if message.body == b"1":
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("really")

    result = handled(LoadedHandler(handle, False, is_async=True), 3, timeout_s=0.05)
    assert result.verdict is not None
    assert result.verdict.to_pylist() == ["ACK", "RETRY", "ACK"]
    assert result.reason is not None
    assert result.reason[1].as_py() == "the handler did not return within 0.05 s (consume timeout)"
    assert result.error_type is not None
    assert result.error_type.to_pylist() == [None, "ConsumeTimeout", None]
    assert ended == ["really"]


def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


def exit_in_the_background() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    kept.append(asyncio.get_running_loop().create_task(leave()))


def cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


kept: list[Any] = []


@pytest.mark.parametrize(
    ("harm", "verdict"), [(stop_the_loop, "ACK"), (exit_in_the_background, "ACK"), (cancel_oneself, "RETRY")]
)
def test_what_a_coroutine_does_to_its_loop_is_a_matter_of_its_own_message(harm: Any, verdict: str) -> None:
    async def handle(message: Any) -> None:
        if message.body == b"2":
            harm()
        for _ in range(3):
            await asyncio.sleep(0)

    result = handled(LoadedHandler(handle, False, is_async=True), 6, concurrency=2)
    verdicts = ["ACK"] * 6 if result.verdict is None else result.verdict.to_pylist()
    assert verdicts == ["ACK", "ACK", verdict, "ACK", "ACK", "ACK"]
    for task in kept:
        assert isinstance(task.exception(), SystemExit)
    kept.clear()


def test_a_coroutine_that_exits_is_a_failure_of_its_own_message() -> None:
    async def handle(message: Any) -> None:
        if message.body == b"1":
            raise SystemExit(3)

    result = handled(LoadedHandler(handle, False, is_async=True), 3)
    assert result.verdict is not None
    assert result.verdict.to_pylist() == ["ACK", "RETRY", "ACK"]


Call = tuple[int, int | None, int, str]


def fail_one(message: Any) -> None:
    """A handler whose second message fails."""
    if message.body == b"1":
        raise ValueError("one")


async def fail_one_on_loop(message: Any) -> None:
    """As fail_one, a coroutine."""
    await asyncio.sleep(0)
    fail_one(message)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_calls_of_a_lane_follow_each_other_up_to_a_failure_and_each_is_told_of(
    is_async: bool, concurrency: int
) -> None:
    began: list[int] = []
    ended: list[Call] = []

    def end(row: int, started: int | None, finished: int, outcome: Outcome | None) -> None:
        ended.append((row, started, finished, "ACK" if outcome is None else outcome.verdict))

    loaded = LoadedHandler(fail_one_on_loop if is_async else fail_one, False, is_async=is_async)
    with closing(OpenedHandler(loaded)) as handler:
        calls = RowCalls(handler, POLICY, concurrency, 60.0, began=began.append, ended=end)
        results = calls.run(numbered(6), range(6), CallOrder(((0, 3, 5), (1, 4))))
    assert results.verdict is not None
    assert results.verdict.to_pylist() == ["ACK", "RETRY", "PARKED", "ACK", "PARKED", "ACK"]
    times = zip(results.started_at.cast(pa.int64()), results.finished_at.cast(pa.int64()), strict=True)
    told = [(started.as_py(), finished.as_py()) for started, finished in times]
    verdicts = {0: "ACK", 1: "RETRY", 3: "ACK", 5: "ACK"}
    assert sorted(ended) == [(row, *told[row], verdict) for row, verdict in verdicts.items()]
    assert sorted(began) == [0, 1, 3, 5]


@pytest.mark.parametrize("carried", [{"rows": TableRow("t", {})}, {"send": Outgoing("t", "x")}])
def test_in_orderly_mode_a_verdict_that_carries_something_fails_its_call(carried: Any) -> None:
    """What follows it on its lane is not called: it would be done before the message that comes again."""

    def handle(message: Any) -> Verdict | None:
        return Verdict.ack(**carried) if message.text == "0" else None

    with closing(OpenedHandler(LoadedHandler(handle, False))) as handler:
        calls = RowCalls(handler, POLICY, 1, 60.0)
        results = calls.run(numbered(3), range(3), CallOrder(((0, 1), (2,))))
        assert results.verdict is not None
        assert results.verdict.to_pylist() == ["RETRY", "PARKED", "ACK"]
        assert "in orderly mode a verdict sends and writes nothing" in str(results.error_text)
        at_once = calls.run(numbered(3), range(3))
        assert at_once.verdict is None or at_once.verdict.to_pylist() == ["ACK"] * 3


@pytest.mark.parametrize("is_async", [False, True])
def test_while_calls_run_and_let_it_somebody_is_told_again_and_again(is_async: bool) -> None:
    ticks, told, on_loop = [0], threading.Event(), asyncio.Event()

    def tick() -> None:
        ticks[0] += 1
        if ticks[0] == 3:
            told.set()
            on_loop.set()

    def handle(message: Any) -> None:
        assert told.wait(DEADLINE_S)

    async def handle_on_loop(message: Any) -> None:
        await asyncio.wait_for(on_loop.wait(), DEADLINE_S)

    loaded = LoadedHandler(handle_on_loop if is_async else handle, False, is_async=is_async)
    with closing(OpenedHandler(loaded)) as handler:
        results = RowCalls(handler, POLICY, 1, 60.0, tick=tick).run(numbered(1), range(1))
    assert results.verdict is None


def test_a_mark_on_the_call_of_a_class_counts() -> None:
    assert not HandlerTarget(f"{HANDLERS}:NotThreadSafeCall").load().thread_safe


def test_an_instance_with_an_async_call_is_a_coroutine_function() -> None:
    with closing(opened("async_instance")) as handler:
        assert invoke_here(handler, numbered(5), POLICY).verdict is None


def test_a_timeout_that_the_coroutine_raises_is_its_own_failure() -> None:
    async def handle(message: Any) -> None:
        raise TimeoutError("the database's")

    result = handled(LoadedHandler(handle, False, is_async=True), 1)
    assert result.reason is not None
    assert result.reason.to_pylist() == [None]
    assert result.error_text is not None
    assert result.error_text.to_pylist() == ["the database's"]


def test_a_class_is_made_and_opened_once_and_closed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("HANDLER_NOTES", str(notes))
    handler = opened("Opened")
    invoke_here(handler, batch([b"a"]), POLICY)
    invoke_here(handler, batch([b"b"]), POLICY)
    handler.close()
    handler.close()
    assert notes.read_text().split("\n") == ["made", "open", "call a", "call b", "close", ""]


def test_a_class_without_call_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is a class without __call__"):
        HandlerTarget(f"{HANDLERS}:WithoutCall").load()


def test_where_the_system_has_no_more_threads_those_that_run_make_all_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    started: list[str] = []

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith("handler-") and thread.name != "handler-watch":
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    called: list[bytes] = []

    def handle(message: Any) -> None:
        threading.Event().wait(0.01)
        called.append(message.body)

    assert handled(LoadedHandler(handle, False), 12, concurrency=20).verdict is None
    assert (len(started), sorted(called)) == (3, sorted(b"%d" % row for row in range(12)))
