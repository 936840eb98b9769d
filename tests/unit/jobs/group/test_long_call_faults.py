"""A call that goes on behind its batch where its worker, the disk, the system or the handler fails."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import threading
import time
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
from jobs.handler.verdicts import GOES_ON
from jobs.handler.watchdog import EXIT_STATUS, Watchdog
from lakemq.handler import DeliveredMessage, Verdict
from tests.support.long_calls import DEADLINE_S, SlowHandler, again, calling, rows_of, slow
from tests.support.outcome_rows import POLICY, SCHEMA, message


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_time, "SHORTEST_LONG_S", 0.1)


WAITS = HandlerTarget(f"{__name__}:waits")


def waits(delivered: DeliveredMessage) -> None:
    """Never ends in the worker, where the message is delivered first, unless it is not slow."""
    if delivered.attempt == 1 and "slow" in delivered.text:
        threading.Event().wait()
    elif delivered.attempt > 1:
        threading.Event().wait(0.6)


def _work(pipe: Connection[Any, Any], directory: Path, timeout_s: float, stays: bool) -> None:
    usual_time.SHORTEST_LONG_S = 0.1
    host = HandlerHost(concurrency=4, timeout_s=timeout_s)
    pipe.send(rows_of(directory, WAITS, [slow(), message(1)], host=host))
    if stays:
        threading.Event().wait()


def left_by_a_worker(directory: Path, timeout_s: float, *, stays: bool) -> tuple[dict[str, Any], int | None]:
    """The row of a message whose call a worker has left, and the status with which that ended."""
    start = multiprocessing.get_context("spawn")
    ours, theirs = start.Pipe(duplex=False)
    worker = start.Process(target=_work, args=(theirs, directory, timeout_s, stays), daemon=True)
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
    assert failed["finished_at"] - failed["started_at"] == timedelta(seconds=1)
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

    with calling(SlowHandler()) as handles:
        threading.Timer(1.0, handles.go_on.set).start()
        monkeypatch.setattr(Watchdog, "__enter__", none)
        handle = CallFile(tmp_path / "x").leave(1, 0, 0.0, 60.0, pa.record_batch({"a": [1]}), 0)
        assert handle is None
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
