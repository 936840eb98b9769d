"""Rows of `deliveries` for a call that its batch did not wait for: one call, one outcome, nothing held up."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkFiles

from delta_tables.ledger import ledger_at
from jobs.group.addressing import Acceptance
from jobs.group.batch_size import Handled
from jobs.group.carried import Carriers
from jobs.group.long_calls import LongCalls
from jobs.handler import slow_calls, usual_time
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import LoadedHandler
from jobs.handler.long_call import long_calls_here
from jobs.handler.verdicts import GOES_ON
from jobs.redelivery.original_position import LAST_ATTEMPT
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings
from lakemq.handler import DeliveredMessage, Outgoing, Verdict
from tests.support.long_calls import DEADLINE_S, HOST, SlowHandler, again, calling, rows_of, slow
from tests.support.outcome_rows import OBEY, POLICY, message, retried


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_time, "SHORTEST_LONG_S", 0.1)


KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["threads", "coroutines"])


@KINDS
def test_a_batch_does_not_wait_for_a_call_that_takes_long_and_a_later_row_says_what_it_came_to(
    tmp_path: Path, is_async: bool
) -> None:
    with calling(SlowHandler(is_async=is_async)) as handles:
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


@KINDS
def test_what_it_raised_is_the_attempt_that_counts(tmp_path: Path, is_async: bool) -> None:
    with calling(SlowHandler(RuntimeError("no"), is_async=is_async)) as handles:
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
    with calling(SlowHandler(Verdict.ack(send=[Outgoing("bills", "one")]))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], may_carry=carriers)
        assert row["outbox"] is None
        handles.finish()
        (done,) = rows_of(tmp_path, handles, [again(row)], may_carry=carriers)
        assert [sent["topic"] for sent in done["outbox"]] == ["bills"]


def test_a_batch_that_is_repeated_asks_for_the_same_call(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
        rows_of(tmp_path, handles, [slow(), message(1)])
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        assert row["reason"] == GOES_ON.reason
        handles.finish()
        done, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        assert (done["verdict"], done["attempt"]) == ("ACK", 1)
        assert handles.calls.count(0) == 1


def test_a_message_that_was_replayed_meanwhile_does_not_get_the_outcome_of_before(tmp_path: Path) -> None:
    with calling(SlowHandler(Verdict.dead("of before"))) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        replayed = again(row) | {"reconsume_times": 5, "body": b"{}"}
        (while_it_goes_on,) = rows_of(tmp_path, handles, [replayed])
        handles.finish()
        (behind_it,) = rows_of(tmp_path, handles, [replayed])
        assert while_it_goes_on["verdict"] == behind_it["verdict"] == "ACK"


WAITED_FOR = ["many", "all", "one at a time", "not thread-safe", "no limit", "no disk", "long delays"]


@KINDS
@pytest.mark.parametrize("why", WAITED_FOR)
def test_calls_are_waited_for(tmp_path: Path, why: str, is_async: bool) -> None:
    """Where more than half take long, or they cannot go on beside the others."""
    host, directory, new = HOST, tmp_path / "calls", [message(1), slow()]
    limit_s: float | None = 0.2
    policy = POLICY
    with calling(SlowHandler(is_async=is_async)) as handles:
        if why == "many":
            new = [message(3), slow(0), slow(1), slow(2)]
        elif why == "all":
            new = [slow(at) for at in range(4)]
        elif why == "one at a time":
            host = HandlerHost(concurrency=1)
        elif why == "not thread-safe":
            handles.loaded = replace(handles.loaded, thread_safe=False)
        elif why == "no limit":
            limit_s = None
        elif why == "long delays":
            policy = RetryPolicy.of("1m", [60_000], 2)
        else:
            directory.symlink_to("nowhere")  # so that nothing can be written there
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(directory, handles, new, host=host, limit_s=limit_s, policy=policy)
        assert [row["verdict"] for row in rows] == ["ACK"] * len(new)


@KINDS
def test_the_first_calls_of_a_worker_are_long_when_they_take_as_long_as_their_batch_may(
    tmp_path: Path, is_async: bool
) -> None:
    """Nothing is known of other calls; how long it took is, until a batch says more."""
    with calling(SlowHandler(is_async=is_async)) as handles:
        threading.Timer(1.0, handles.go_on.set).start()
        (row,) = rows_of(tmp_path, handles, [slow()], limit_s=0.3)
        assert row["reason"] == GOES_ON.reason
        handles.await_end()
        (done,) = rows_of(tmp_path, handles, [again(row)])
        assert (done["verdict"], handles.calls.count(0)) == ("ACK", 1)
        handles.go_on.clear()
        threading.Timer(1.0, handles.go_on.set).start()
        (waited_for,) = rows_of(tmp_path, handles, [slow(1)], limit_s=0.3)
        assert waited_for["verdict"] == "ACK", "as long as the call before"


def test_the_delays_are_those_of_the_broker_that_are_not_too_long(tmp_path: Path) -> None:
    policy = RetryPolicy.of("2m", [120_000, 5_000, 20_000], 2)
    levels = []
    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], policy=policy)
        for _ in range(6):
            (row,) = rows_of(tmp_path, handles, [again(row)], policy=policy)
            levels.append(row["delay_level"])
    assert levels == [2, 2, 3, 3, 3, 3]


def session(master: str, **conf: str) -> Any:
    named = {name.replace("_", "."): value for name, value in conf.items()}
    context = SimpleNamespace(master=master, getConf=lambda: named)
    return SimpleNamespace(sparkContext=context)


def test_calls_go_on_on_one_machine_whose_workers_stay_where_messages_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    settings = ConsumeSettings("g", ("orders",), OBEY, ledger_at(str(tmp_path / "ledger")))
    found = LongCalls.of_group(session("local[2]"), settings)
    assert found is not None
    assert found.directory.parent == tmp_path
    assert LongCalls.of_group(session("local[2]"), settings) == found, "also when the group starts again"
    assert LongCalls.of_group(session("local[2]"), replace(settings, group="h")) != found
    assert LongCalls.of_group(session("local[2]"), replace(settings, mode="orderly")) == found
    others = [
        (session("spark://here:7077"), settings),
        (session("local[2]", spark_python_worker_reuse="false"), settings),
        (session("local[2]", spark_python_use_daemon="false"), settings),
        (session("local[2]"), replace(settings, mode="broadcast")),
        (session("local[2]"), replace(settings, trigger="1 minute")),
        (session("local[2]"), replace(settings, trigger="16000 milliseconds")),
        (session("local[2]", spark_python_factory_idleWorkerMaxPoolSize="1"), settings),
    ]
    assert {LongCalls.of_group(*each) for each in others} == {None}


def test_a_message_that_could_not_come_again_is_waited_for(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
        last = retried(90, 7, LAST_ATTEMPT - 1, {"slow": True})
        threading.Timer(1.0, handles.go_on.set).start()
        row, _ = rows_of(tmp_path, handles, [last, message(1)])
        assert (row["verdict"], row["attempt"]) == ("ACK", LAST_ATTEMPT)


def test_one_whose_call_goes_on_and_that_could_not_come_again_is_waited_for(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
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

    with calling(SlowHandler()) as handles:
        monkeypatch.setattr(slow_calls, "SLOW_S", 0.1)
        monkeypatch.setattr(slow_calls, "_on_stderr", hear)
        rows_of(tmp_path, handles, [message(2), slow(7)], host=HandlerHost(concurrency=4, timeout_s=60.0))
        heard.clear()
        assert heard.wait(DEADLINE_S)
        assert "topic orders, broker_name broker-a, queue_id 1, queue_offset 7, attempt 1" in said[-1]
        assert said[-1].endswith("; its batch does not wait for it (--consume-timeout 60 s)")


def test_calls_that_go_on_count_among_those_at_a_time(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
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

        others = SlowHandler()
        others.loaded = LoadedHandler(count, False)
        rows_of(tmp_path, others, [message(at) for at in range(10, 30)])
        assert most == [2], "of four"


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

    handles = SlowHandler()
    handles.loaded = LoadedHandler(handle, False)
    rows = rows_of(tmp_path, handles, [message(3), slow(0), slow(1), slow(2)])
    assert [row["verdict"] for row in rows] == ["ACK"] * 4


def test_a_message_of_another_queue_or_group_does_not_get_the_outcome(tmp_path: Path) -> None:
    with calling(SlowHandler(Verdict.dead("not yours"))) as handles:
        rows_of(tmp_path, handles, [slow(), message(1)])
        handles.finish()
        for elsewhere in ({"queue_id": 2}, {"broker_name": "broker-b"}, {"topic": "bills"}):
            (row,) = rows_of(tmp_path, handles, [message(0) | elsewhere])
            assert row["verdict"] == "ACK"
        (own,) = rows_of(tmp_path, handles, [message(0)])
        assert own["verdict"] == "DEAD"


def test_at_least_one_call_is_made_beside_those_that_go_on(tmp_path: Path) -> None:
    two = HandlerHost(concurrency=2)
    with calling(SlowHandler()) as handles:
        rows_of(tmp_path, handles, [slow(0), message(1)], host=two)
        one, other = rows_of(tmp_path, handles, [message(2), message(3)], host=two)
        assert one["verdict"] == other["verdict"] == "ACK"
        # Half of those at a time go on already: a further one is waited for.
        threading.Timer(1.0, handles.go_on.set).start()
        rows = rows_of(tmp_path, handles, [message(4), slow(5)], host=two)
        assert [row["verdict"] for row in rows] == ["ACK", "ACK"]


def test_calls_of_another_group_do_not_count(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
        rows_of(tmp_path / "a", handles, [slow(0), slow(1), message(2)])
        others = SlowHandler()
        with calling(others):
            both = [slow(0), slow(1), message(2)]
            rows = rows_of(tmp_path / "b", others, both)
            assert [row["reason"] for row in rows[:2]] == [GOES_ON.reason] * 2


def test_a_run_over_what_is_there_waits_for_a_call_that_goes_on(tmp_path: Path) -> None:
    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)])
        threading.Timer(0.5, handles.go_on.set).start()
        (done,) = rows_of(tmp_path, handles, [again(row)], limit_s=None)
        assert (done["verdict"], handles.calls.count(0)) == ("ACK", 1)


def test_an_outcome_that_is_found_says_nothing_of_how_long_a_batch_takes(tmp_path: Path) -> None:
    counted: list[Handled] = []
    with calling(SlowHandler()) as handles:
        row, _ = rows_of(tmp_path, handles, [slow(), message(1)], handled=counted.append)
        rows_of(tmp_path, handles, [again(row)], handled=counted.append)
        handles.finish()
        rows_of(tmp_path, handles, [again(row) | {"reconsume_times": 2}], handled=counted.append)
    assert [(each.rows, each.put_off, each.found) for each in counted] == [(1, 1, 0), (0, 1, 0), (1, 0, 1)]
