"""A call that goes on behind its batch where its worker, the disk, the system or the handler fails."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.handler import long_call, usual_time
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.handler.long_call import HERE, CallFile, close_under_way, long_calls_here
from jobs.handler.opened_handler import opened
from jobs.handler.verdicts import GOES_ON
from jobs.handler.watchdog import EXIT_STATUS, Watchdog
from lakemq.handler import DeliveredMessage, Verdict
from tests.support.long_calls import DEADLINE_S, SlowHandler, again, calling, rows_of, slow
from tests.support.outcome_rows import POLICY, SCHEMA, message


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_time, "SHORTEST_LONG_S", 0.1)


MESSAGE = pa.record_batch(
    {"topic": ["orders"], "broker_name": ["broker-a"], "queue_id": [0], "queue_offset": [0], "attempt": [1]}
)
WAITS = HandlerTarget(f"{__name__}:waits")


def waits(delivered: DeliveredMessage) -> None:
    """Never ends in the worker, where the message is delivered first, unless it is not slow."""
    if delivered.attempt == 1 and "slow" in delivered.text:
        threading.Event().wait()
    elif delivered.attempt > 1:
        threading.Event().wait(0.6)


def _work(
    pipe: Connection[Any, Any], directory: Path, target: HandlerTarget, timeout_s: float, stays: bool
) -> None:
    usual_time.SHORTEST_LONG_S = 0.1
    host = HandlerHost(concurrency=4, timeout_s=timeout_s)
    pipe.send(rows_of(directory, target, [slow(), message(1)], host=host))
    if stays:
        threading.Event().wait()


def left_by_a_worker(
    directory: Path, timeout_s: float, *, stays: bool, target: HandlerTarget = WAITS
) -> tuple[dict[str, Any], int | None]:
    """The row of a message whose call a worker has left, and the status with which that ended."""
    start = multiprocessing.get_context("spawn")
    ours, theirs = start.Pipe(duplex=False)
    worker = start.Process(target=_work, args=(theirs, directory, target, timeout_s, stays), daemon=True)
    worker.start()
    theirs.close()
    assert ours.poll(DEADLINE_S)
    row: dict[str, Any] = ours.recv()[0]
    worker.join(DEADLINE_S)
    return row, worker.exitcode


@pytest.mark.long
def test_a_call_whose_worker_ended_is_made_anew_and_waited_for(tmp_path: Path) -> None:
    row, status = left_by_a_worker(tmp_path, 900.0, stays=False)
    assert (row["reason"], status) == (GOES_ON.reason, 0)
    done, other = rows_of(tmp_path, WAITS, [again(row), message(2)])
    assert (done["verdict"], done["attempt"], other["verdict"]) == ("ACK", 2, "ACK")


@pytest.mark.long
def test_a_call_that_takes_longer_than_it_may_ends_its_worker_and_is_a_failed_attempt(tmp_path: Path) -> None:
    row, status = left_by_a_worker(tmp_path, 1.0, stays=True)
    assert (row["reason"], status) == (GOES_ON.reason, EXIT_STATUS)
    (failed,) = rows_of(tmp_path, WAITS, [again(row)])
    assert (failed["verdict"], failed["error_type"]) == ("RETRY", "ConsumeTimeout")
    assert failed["finished_at"] - failed["started_at"] >= timedelta(seconds=1)
    assert failed["delay_level"] == POLICY.delay_levels[0]


def test_what_a_call_says_when_its_handler_is_closed_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends workers that have no task: the pool is closed under the call, which raises."""
    with calling(SlowHandler(RuntimeError("the pool is closed"))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        monkeypatch.setattr(HERE, "closes", False)  # and set back behind the test
        close_under_way()
        handles.finish()
    handles.verdict = None
    (again_called,) = rows_of(tmp_path, handles, [again(row)], limit_s=None)
    assert (again_called["verdict"], handles.calls.count(0)) == ("ACK", 2)


def test_a_process_that_a_call_has_forked_does_not_keep_it_going(tmp_path: Path) -> None:
    forked = []

    class Forks(SlowHandler):
        def handle(self, delivered: DeliveredMessage) -> Verdict | None:
            if "slow" in delivered.text:
                assert self.go_on.wait(DEADLINE_S)
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                forked.append(child)
            return None

    with calling(Forks()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        handles.finish()
        try:
            (done,) = rows_of(tmp_path, handles, [again(row)])
            assert done["verdict"] == "ACK"
        finally:
            os.kill(forked[0], signal.SIGKILL)
            os.waitpid(forked[0], 0)


def test_what_cannot_be_noted_is_a_failed_attempt_and_a_full_disk_calls_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(value: Any) -> bytes:
        if value[2] is None:
            raise TypeError("no such thing travels")
        return real(value)

    real = pickle.dumps
    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        monkeypatch.setattr(pickle, "dumps", refuse)
        handles.finish()
        (failed,) = rows_of(tmp_path, handles, [again(row)])
        assert (failed["verdict"], failed["error_text"]) == ("RETRY", "no such thing travels")
    monkeypatch.undo()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(7), message(1)], limit_s=0.2)
        monkeypatch.setattr(CallFile, "_replace", staticmethod(full))
        monkeypatch.setattr(Path, "touch", full)
        handles.finish()
        (done,) = rows_of(tmp_path, handles, [again(row)], limit_s=None)
        assert (done["verdict"], handles.calls.count(7)) == ("ACK", 2)


def test_a_system_without_a_further_thread_has_the_call_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Watchdog, "__enter__", none)
    assert CallFile(tmp_path / "x").leave(1, 0, 0.0, 60.0, None, MESSAGE, 0) is None
    assert list(tmp_path.iterdir()) == []
    assert long_calls_here(tmp_path) == 0


def test_calls_that_would_hold_too_much_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = pa.RecordBatch.from_pylist([slow(), message(1)], SCHEMA).nbytes
    monkeypatch.setattr(long_call, "MOST_HELD_BYTES", size // 2)
    with calling(SlowHandler()) as handles:
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(tmp_path, handles, [slow(), message(1)])
        assert [row["verdict"] for row in rows] == ["ACK", "ACK"]


def test_of_a_message_that_was_replayed_while_its_call_goes_on_each_call_has_its_own_outcome(
    tmp_path: Path,
) -> None:
    """The second one is slow, too, and waited for: the file is the first one's."""
    with calling(SlowHandler(Verdict.dead("of the first call"))) as first:
        row, _ = rows_of(tmp_path, first, [slow(), message(1)])
        with calling(SlowHandler()) as second:
            replayed = again(row) | {"reconsume_times": 1}
            replayed["properties"] = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/0")]
            third = replayed | {"reconsume_times": 2}
            threading.Timer(1.0, second.go_on.set).start()
            done, _ = rows_of(tmp_path, second, [third, message(2)])
            assert (done["verdict"], done["attempt"]) == ("ACK", 3)
            assert long_calls_here(tmp_path) == 1, "the first goes on"


def _hold(pipe: Connection[Any, Any], file: Path) -> None:
    call = CallFile(file).leave(1, 0, time.monotonic(), 60.0, None, MESSAGE, 0)
    assert call is not None
    pipe.send("held")
    pipe.recv()
    call.end((0, 1, None))
    pipe.send("ended")


@pytest.mark.long
def test_the_file_of_another_process_is_left_alone(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn")
    ours, theirs = start.Pipe()
    other = start.Process(target=_hold, args=(theirs, tmp_path / "x"), daemon=True)
    other.start()
    assert ours.poll(DEADLINE_S)
    assert ours.recv() == "held"
    file = CallFile(tmp_path / "x")
    assert file.leave(9, 0, 0.0, 60.0, None, MESSAGE, 0) is None
    assert file.look(5, must_wait=False) is None, "another delivery's"
    assert file.look(2, must_wait=False) == "goes on"
    ours.send("end")
    assert file.look(3, must_wait=True) == (0, 1, None)
    assert list(tmp_path.iterdir()) == []
    other.join(DEADLINE_S)


def test_a_full_disk_has_a_call_that_goes_on_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        with monkeypatch.context() as disk:
            disk.setattr(CallFile, "_ask", full)
            threading.Timer(0.5, handles.go_on.set).start()
            (done,) = rows_of(tmp_path, handles, [again(row)])
        assert (done["verdict"], done["attempt"], handles.calls.count(0)) == ("ACK", 2, 1)


def test_a_call_is_known_to_go_on_until_what_it_came_to_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, noted = CallFile(tmp_path / "x"), list[tuple[Any, bool]]()
    real = CallFile.came_to

    def note(self: CallFile, made: Any) -> None:
        noted.append((made, long_calls_here(tmp_path) == 1))
        real(self, made)

    monkeypatch.setattr(CallFile, "came_to", note)
    (tmp_path / "x.came").write_bytes(b"of an earlier call")
    call = file.leave(1, 0, time.monotonic(), 60.0, None, MESSAGE, 0)
    assert call is not None
    assert not (tmp_path / "x.came").exists()
    call.end((0, 1, None))
    call._note((0, 2, None))  # as the watch does when it is late as well  # noqa: SLF001
    assert noted == [((0, 1, None), True)]
    assert file.look(2, must_wait=False) == (0, 1, None)


def test_a_call_that_ended_before_it_was_left_is_no_call_whose_worker_died(tmp_path: Path) -> None:
    file = CallFile(tmp_path / "x")
    call = file.leave(1, 0, time.monotonic(), 60.0, None, MESSAGE, 0)
    assert call is not None
    call.forget()
    assert file.look(2, must_wait=False) is None
    assert list(tmp_path.iterdir()) == []


def test_where_the_system_has_no_thread_at_all_calls_are_made_on_the_tasks_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def none(self: threading.Thread) -> None:
        if self.name.startswith("handler-") and self.name[-1].isdigit():
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", none)
    rows = rows_of(tmp_path, SlowHandler(), [message(at) for at in range(3)])
    assert [row["verdict"] for row in rows] == ["ACK"] * 3


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_coroutine_that_takes_longer_than_it_may_is_cancelled_and_its_worker_stays(
    tmp_path: Path, gives_up: bool
) -> None:
    """What it makes of the cancellation is not asked."""

    class Sleeps(SlowHandler):
        async def handle_on_loop(self, delivered: DeliveredMessage) -> Verdict | None:
            self.calls.append(delivered.queue_offset)
            if "slow" in delivered.text and delivered.attempt == 1:
                try:
                    await asyncio.sleep(DEADLINE_S)
                except asyncio.CancelledError:
                    if gives_up:
                        raise
            return None

    with calling(Sleeps(is_async=True)) as handles:
        host = HandlerHost(concurrency=4, timeout_s=1.0)
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], host=host)
        assert row["reason"] == GOES_ON.reason
        handles.await_end()
        (failed,) = rows_of(tmp_path, handles, [again(row)], host=host)
        assert (failed["verdict"], failed["error_type"]) == ("RETRY", "ConsumeTimeout")
        assert handles.calls.count(0) == 1
        (done,) = rows_of(tmp_path, handles, [again(failed)], host=host)
        assert done["verdict"] == "ACK"


HOLDS_THE_LOOP = HandlerTarget(f"{__name__}:holds_the_loop")


async def holds_the_loop(delivered: DeliveredMessage) -> None:
    """Waits for a second, and from then on another's calls wait with it; where it comes again it does not."""
    if delivered.attempt == 1 and "slow" in delivered.text:
        await asyncio.sleep(1.0)
        threading.Event().wait()


@pytest.mark.long
def test_a_call_whose_loop_is_held_behind_its_task_is_made_anew_and_waited_for(tmp_path: Path) -> None:
    """Whose call it is that holds it nobody knows: an innocent one would be given up with it."""
    row, status = left_by_a_worker(tmp_path, 2.0, stays=True, target=HOLDS_THE_LOOP)
    assert (row["reason"], status) == (GOES_ON.reason, EXIT_STATUS)
    (done,) = rows_of(tmp_path, HOLDS_THE_LOOP, [again(row)])
    assert (done["verdict"], done["attempt"]) == ("ACK", 2)
    opened(HOLDS_THE_LOOP).close()
    opened.cache_clear()


@pytest.mark.long
def test_a_coroutine_that_does_not_end_when_it_is_cancelled_ends_its_worker_and_has_failed(
    tmp_path: Path,
) -> None:
    target = HandlerTarget(f"{__name__}:does_not_end")
    row, status = left_by_a_worker(tmp_path, 2.0, stays=True, target=target)
    assert (row["reason"], status) == (GOES_ON.reason, EXIT_STATUS)
    (failed,) = rows_of(tmp_path, target, [again(row)])
    assert (failed["verdict"], failed["error_type"]) == ("RETRY", "ConsumeTimeout")


async def does_not_end(delivered: DeliveredMessage) -> None:
    """Waits, whoever cancels it, where the message is slow."""
    while "slow" in delivered.text:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(DEADLINE_S)
