"""Rows of `deliveries` for a call that its batch did not wait for: one call, one outcome, nothing held up."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkFiles

from delta_tables.ledger import ledger_at
from jobs.group.addressing import Acceptance
from jobs.group.batch_size import Handled
from jobs.group.carried import Carriers
from jobs.group.long_calls import LongCalls
from jobs.group.outcomes import OutcomeTask
from jobs.handler import long_call, slow_calls, usual_time
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.long_call import CallFile, _here, close_under_way, long_calls_here
from jobs.handler.verdicts import GOES_ON
from jobs.handler.watchdog import EXIT_STATUS, Watchdog
from jobs.redelivery.original_position import LAST_ATTEMPT
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings
from lakemq.handler import DeliveredMessage, Outgoing, Verdict
from tests.support.outcome_rows import OBEY, POLICY, SCHEMA, message, retried

DEADLINE_S = 30.0
HOST = HandlerHost(concurrency=4)


class Handler:
    """Handles each message at once, but one whose body says that it is slow: that waits until it is let go.

    Args:
        verdict: Of the slow one; an exception is raised.
    """

    def __init__(self, verdict: Verdict | Exception | None = None) -> None:
        self.verdict = verdict
        self.go_on = threading.Event()
        self.calls: list[int] = []
        self.loaded = LoadedHandler(self.handle, False)

    def load(self) -> LoadedHandler:
        return self.loaded

    def handle(self, delivered: DeliveredMessage) -> Verdict | None:
        self.calls.append(delivered.queue_offset)
        if "slow" not in delivered.text:
            return None
        assert self.go_on.wait(DEADLINE_S)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    def finish(self) -> None:
        """Lets the calls go, and waits until those that were left have ended."""
        self.go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("handler-"):
                thread.join(DEADLINE_S)
        assert [call for call in _here.calls.values() if not call.ended.is_set()] == []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_time, "SHORTEST_LONG_S", 0.1)


@contextmanager
def calling(handles: Handler) -> Iterator[Handler]:
    try:
        yield handles
    finally:
        handles.finish()


def rows_of(
    directory: Path,
    handles: Any,
    messages: list[dict[str, Any]],
    *,
    host: HandlerHost = HOST,
    limit_s: float | None = 0.2,
    policy: RetryPolicy = POLICY,
    **task: Any,
) -> list[dict[str, Any]]:
    handle = OutcomeTask(
        *("g", handles, policy, "concurrent", "query-1", 5),
        host=host,
        limit_s=limit_s,
        long_calls=LongCalls(directory),
        **task,
    )
    made = list(handle(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)])))
    return [row for rows in made for row in rows.to_pylist()]


def slow(offset: int = 0) -> dict[str, Any]:
    return message(offset, {"slow": True})


def again(row: dict[str, Any]) -> dict[str, Any]:
    """The message of a row that comes again."""
    origin = f"broker-a/1/{row['queue_offset']}"
    properties = [*row["properties"], ("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", origin)]
    return retried(90, 0, row["attempt"], body=row["body"], properties=properties)


def test_a_batch_does_not_wait_for_a_call_that_takes_long_and_a_later_row_says_what_it_came_to(
    tmp_path: Path,
) -> None:
    with calling(Handler()) as handles:
        first, *others = rows_of(tmp_path, handles, [slow(), *(message(at) for at in range(1, 6))])
        assert [row["verdict"] for row in others] == ["ACK"] * 5
        assert (first["verdict"], first["reason"], first["started_at"]) == ("RETRY", GOES_ON.reason, None)
        assert first["error_type"] is None
        assert first["properties"] == [("colour", "red"), ("LMQ_UNCOUNTED", "1"), ("LMQ_PUT_OFF", "1")]
        waits = []
        row = first
        for _ in range(7):
            waits.append(row["next_attempt_at"] - row["finished_at"])
            new = message(10 + len(waits))
            row, beside = rows_of(tmp_path, handles, [again(row), new])
            assert (row["reason"], beside["verdict"]) == (GOES_ON.reason, "ACK")
        seconds = [1, 10, 10, 10, 30, 30, 30]
        assert waits == [timedelta(seconds=s) for s in seconds], "the delays there are, up to half a minute"
        handles.finish()
        (done,) = rows_of(tmp_path, handles, [again(row)])
        assert (done["verdict"], done["attempt"], done["queue_offset"]) == ("ACK", 9, 0)
        assert done["started_at"] < first["finished_at"] < done["finished_at"], "the call's own times"
        assert handles.calls.count(0) == 1
        assert list(tmp_path.iterdir()) == []


def test_what_it_raised_is_the_attempt_that_counts(tmp_path: Path) -> None:
    with calling(Handler(RuntimeError("no"))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        row = rows_of(tmp_path, handles, [again(row)])[0]
        handles.finish()
        (failed,) = rows_of(tmp_path, handles, [again(row)])
        assert (failed["verdict"], failed["error_text"]) == ("RETRY", "no")
        assert failed["delay_level"] == POLICY.delay_levels[0], "as after a first attempt"
        assert ("LMQ_UNCOUNTED", "2") in failed["properties"]
        assert handles.calls.count(0) == 1
        (second,) = rows_of(tmp_path, handles, [again(failed)])
        assert (second["error_text"], second["delay_level"]) == ("no", POLICY.delay_levels[1])
        assert handles.calls.count(0) == 2, "anew, now that it had come to something"


def test_what_it_sends_is_in_the_later_row(tmp_path: Path) -> None:
    carriers = Carriers(Acceptance(frozenset(["bills"])), {})
    with calling(Handler(Verdict.ack(send=[Outgoing("bills", "one")]))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], may_carry=carriers)
        assert row["outbox"] is None
        handles.finish()
        (done,) = rows_of(tmp_path, handles, [again(row)], may_carry=carriers)
        assert [sent["topic"] for sent in done["outbox"]] == ["bills"]


def test_a_batch_that_is_repeated_asks_for_the_same_call(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        rows_of(tmp_path, handles, [slow(), message(1)])
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        assert row["reason"] == GOES_ON.reason
        handles.finish()
        done, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        assert (done["verdict"], done["attempt"]) == ("ACK", 1)
        assert handles.calls.count(0) == 1


def test_a_message_that_was_replayed_meanwhile_does_not_get_the_outcome_of_before(tmp_path: Path) -> None:
    with calling(Handler(Verdict.dead("of before"))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        replayed = again(row) | {"reconsume_times": 5, "body": b"{}"}
        (while_it_goes_on,) = rows_of(tmp_path, handles, [replayed])
        handles.finish()
        (behind_it,) = rows_of(tmp_path, handles, [replayed])
        assert while_it_goes_on["verdict"] == behind_it["verdict"] == "ACK"


WAITED_FOR = ["many", "unknown", "one at a time", "not thread-safe", "no limit", "no disk", "long delays"]


@pytest.mark.parametrize("why", WAITED_FOR)
def test_calls_are_waited_for(tmp_path: Path, why: str) -> None:
    """Where more than half take long, nothing is known of the others, or they cannot go on beside them."""
    host, directory, new = HOST, tmp_path / "calls", [message(1), slow()]
    limit_s: float | None = 0.2
    policy = POLICY
    with calling(Handler()) as handles:
        if why == "many":
            new = [message(3), slow(0), slow(1), slow(2)]
        elif why == "unknown":
            new = [slow()]
        elif why == "one at a time":
            host = HandlerHost(concurrency=1)
        elif why == "not thread-safe":
            handles.loaded = LoadedHandler(handles.handle, False, thread_safe=False)
        elif why == "no limit":
            limit_s = None
        elif why == "long delays":
            policy = RetryPolicy.of("1m", [60_000], 2)
        else:
            directory.symlink_to("nowhere")  # so that nothing can be written there
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(directory, handles, new, host=host, limit_s=limit_s, policy=policy)
        assert [row["verdict"] for row in rows] == ["ACK"] * len(new)


def test_the_delays_are_those_of_the_broker_that_are_not_too_long(tmp_path: Path) -> None:
    policy = RetryPolicy.of("2m", [120_000, 5_000, 20_000], 2)
    levels = []
    with calling(Handler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], policy=policy)
        for _ in range(6):
            (row,) = rows_of(tmp_path, handles, [again(row)], policy=policy)
            levels.append(row["delay_level"])
    assert levels == [2, 2, 3, 3, 3, 3]


def session(master: str, **conf: str) -> Any:
    named = {name.replace("_", "."): value for name, value in conf.items()}
    context = SimpleNamespace(master=master, getConf=lambda: named)
    return SimpleNamespace(sparkContext=context)


def test_calls_go_on_in_concurrent_mode_on_one_machine_whose_workers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    settings = ConsumeSettings("g", ("orders",), OBEY, ledger_at(str(tmp_path / "ledger")))
    found = LongCalls.of_group(session("local[2]"), settings)
    assert found is not None
    assert found.directory.parent == tmp_path
    assert LongCalls.of_group(session("local[2]"), settings) == found, "also when the group starts again"
    assert LongCalls.of_group(session("local[2]"), replace(settings, group="h")) != found
    others = [
        (session("spark://here:7077"), settings),
        (session("local[2]", spark_python_worker_reuse="false"), settings),
        (session("local[2]", spark_python_use_daemon="false"), settings),
        (session("local[2]"), replace(settings, mode="orderly")),
        (session("local[2]"), replace(settings, mode="broadcast")),
        (session("local[2]"), replace(settings, trigger="1 minute")),
        (session("local[2]"), replace(settings, trigger="16000 milliseconds")),
        (session("local[2]", spark_python_factory_idleWorkerMaxPoolSize="1"), settings),
    ]
    assert {LongCalls.of_group(*each) for each in others} == {None}


def test_a_message_that_could_not_come_again_is_waited_for(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        last = retried(90, 7, LAST_ATTEMPT - 1, {"slow": True})
        threading.Timer(1.0, handles.go_on.set).start()
        row, _ = rows_of(tmp_path, handles, [last, message(1)])
        assert (row["verdict"], row["attempt"]) == ("ACK", LAST_ATTEMPT)


def test_one_whose_call_goes_on_and_that_could_not_come_again_is_waited_for(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        before = retried(90, 7, LAST_ATTEMPT - 2, {"slow": True})
        row, _ = rows_of(tmp_path, handles, [before, message(1)])
        assert row["reason"] == GOES_ON.reason
        threading.Timer(1.0, handles.go_on.set).start()
        (done,) = rows_of(tmp_path, handles, [again(row)])
        assert (done["verdict"], done["attempt"]) == ("ACK", LAST_ATTEMPT)
        assert handles.calls.count(7) == 1


def test_it_is_named_on_standard_error_as_long_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, heard = list[str](), threading.Event()

    def hear(line: str) -> None:
        said.append(line)
        heard.set()

    with calling(Handler()) as handles:
        monkeypatch.setattr(slow_calls, "SLOW_S", 0.1)
        monkeypatch.setattr(slow_calls, "_on_stderr", hear)
        rows_of(tmp_path, handles, [message(2), slow(7)], host=HandlerHost(concurrency=4, timeout_s=60.0))
        heard.clear()
        assert heard.wait(DEADLINE_S)
        assert "topic orders, broker_name broker-a, queue_id 1, queue_offset 7, attempt 1" in said[-1]
        assert said[-1].endswith("; its batch does not wait for it (--consume-timeout 60 s)")


def test_calls_that_go_on_count_among_those_at_a_time(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        rows_of(tmp_path, handles, [slow(0), slow(1), message(2)])
        assert long_calls_here(tmp_path) == 2
        guard, at_once, most = threading.Lock(), [0], [0]

        def count(delivered: DeliveredMessage) -> None:
            with guard:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            threading.Event().wait(0.02)
            with guard:
                at_once[0] -= 1

        others = Handler()
        others.loaded = LoadedHandler(count, False)
        rows_of(tmp_path, others, [message(at) for at in range(10, 30)])
        assert most == [2], "of four"


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


def test_a_call_whose_worker_ended_is_made_anew_and_waited_for(tmp_path: Path) -> None:
    row, status = left_by_a_worker(tmp_path, 900.0, stays=False)
    assert (row["reason"], status) == (GOES_ON.reason, 0)
    done, other = rows_of(tmp_path, WAITS, [again(row), message(2)])
    assert (done["verdict"], done["attempt"], other["verdict"]) == ("ACK", 2, "ACK")


def test_a_call_that_takes_longer_than_it_may_ends_its_worker_and_is_a_failed_attempt(tmp_path: Path) -> None:
    row, status = left_by_a_worker(tmp_path, 1.0, stays=True)
    assert (row["reason"], status) == (GOES_ON.reason, EXIT_STATUS)
    (failed,) = rows_of(tmp_path, WAITS, [again(row)])
    assert (failed["verdict"], failed["error_type"]) == ("RETRY", "ConsumeTimeout")
    assert failed["finished_at"] - failed["started_at"] == timedelta(seconds=1)
    assert failed["delay_level"] == POLICY.delay_levels[0]


def test_coroutines_are_waited_for(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, COROUTINE, [slow(), message(1)])
    assert [row["verdict"] for row in rows] == ["ACK", "ACK"]


COROUTINE = HandlerTarget(f"{__name__}:coroutine")


async def coroutine(delivered: DeliveredMessage) -> None:
    """Takes long where the message says so."""
    if "slow" in delivered.text:
        await asyncio.sleep(0.6)


def test_of_equally_long_calls_none_is_left_when_the_first_one_ends(tmp_path: Path) -> None:
    """The others are about to end, too."""
    guard, ended, third = threading.Lock(), [0], threading.Event()

    def handle(delivered: DeliveredMessage) -> None:
        if "slow" not in delivered.text:
            return
        with guard:
            ended[0] += 1
            if ended[0] == 3:
                third.set()
        assert third.wait(DEADLINE_S)
        threading.Event().wait(0.8 + delivered.queue_offset / 50)

    handles = Handler()
    handles.loaded = LoadedHandler(handle, False)
    rows = rows_of(tmp_path, handles, [message(3), slow(0), slow(1), slow(2)])
    assert [row["verdict"] for row in rows] == ["ACK"] * 4


def test_a_message_of_another_queue_or_group_does_not_get_the_outcome(tmp_path: Path) -> None:
    with calling(Handler(Verdict.dead("not yours"))) as handles:
        rows_of(tmp_path, handles, [slow(), message(1)])
        handles.finish()
        for elsewhere in ({"queue_id": 2}, {"broker_name": "broker-b"}, {"topic": "bills"}):
            (row,) = rows_of(tmp_path, handles, [message(0) | elsewhere])
            assert row["verdict"] == "ACK"
        (own,) = rows_of(tmp_path, handles, [message(0)])
        assert own["verdict"] == "DEAD"


def test_at_least_one_call_is_made_beside_those_that_go_on(tmp_path: Path) -> None:
    two = HandlerHost(concurrency=2)
    with calling(Handler()) as handles:
        rows_of(tmp_path, handles, [slow(0), message(1)], host=two)
        one, other = rows_of(tmp_path, handles, [message(2), message(3)], host=two)
        assert one["verdict"] == other["verdict"] == "ACK"
        # Half of those at a time go on already: a further one is waited for.
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(tmp_path, handles, [message(4), slow(5)], host=two)
        assert [row["verdict"] for row in rows] == ["ACK", "ACK"]


def test_calls_of_another_group_do_not_count(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        rows_of(tmp_path / "a", handles, [slow(0), slow(1), message(2)])
        others = Handler()
        with calling(others):
            both = [slow(0), slow(1), message(2)]
            rows = rows_of(tmp_path / "b", others, both)
            assert [row["reason"] for row in rows[:2]] == [GOES_ON.reason] * 2


def test_what_a_call_says_when_its_handler_is_closed_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends workers that have no task: the pool is closed under the call, which raises."""
    with calling(Handler(RuntimeError("the pool is closed"))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        monkeypatch.setattr(_here, "closes", False)  # and set back behind the test
        close_under_way()
        handles.finish()
    handles.verdict = None
    (again_called,) = rows_of(tmp_path, handles, [again(row)], limit_s=None)
    assert (again_called["verdict"], handles.calls.count(0)) == ("ACK", 2)


def test_a_process_that_a_call_has_forked_does_not_keep_it_going(tmp_path: Path) -> None:
    forked = []

    class Forks(Handler):
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
    with calling(Handler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        monkeypatch.setattr(pickle, "dumps", refuse)
        handles.finish()
        (failed,) = rows_of(tmp_path, handles, [again(row)])
        assert (failed["verdict"], failed["error_text"]) == ("RETRY", "no such thing travels")
    monkeypatch.undo()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with calling(Handler()) as handles:
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

    with calling(Handler()) as handles:
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
    with calling(Handler()) as handles:
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(tmp_path, handles, [slow(), message(1)])
        assert [row["verdict"] for row in rows] == ["ACK", "ACK"]


def test_a_run_over_what_is_there_waits_for_a_call_that_goes_on(tmp_path: Path) -> None:
    with calling(Handler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        threading.Timer(0.5, handles.go_on.set).start()
        (done,) = rows_of(tmp_path, handles, [again(row)], limit_s=None)
        assert (done["verdict"], handles.calls.count(0)) == ("ACK", 1)


def test_an_outcome_that_is_found_says_nothing_of_how_long_a_batch_takes(tmp_path: Path) -> None:
    counted: list[Handled] = []
    with calling(Handler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], handled=counted.append)
        rows_of(tmp_path, handles, [again(row)], handled=counted.append)
        handles.finish()
        rows_of(tmp_path, handles, [again(row) | {"reconsume_times": 2}], handled=counted.append)
    assert [(each.rows, each.put_off, each.found) for each in counted] == [(1, 1, 0), (0, 1, 0), (1, 0, 1)]
