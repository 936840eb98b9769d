"""What a batch waits for is said by name, each time it has taken twice as long, and no ordinary call is."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from jobs.handler import slow_calls
from jobs.handler.batch_calls import Before
from jobs.handler.invocation import HandlerHost, invoke_here
from jobs.handler.loader import LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.slow_calls import SLOW_S, SlowCalls
from jobs.handler.watchdog import Watchdog
from jobs.redelivery.retry_policy import RetryPolicy

DEADLINE_S = 30.0


def messages(offsets: list[int]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "topic": ["orders"] * len(offsets),
        "broker_name": ["broker-a"] * len(offsets),
        "queue_id": [3] * len(offsets),
        "queue_offset": offsets,
        "attempt": [2] * len(offsets),
        "body": [b"secret"] * len(offsets),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_the_call_that_a_batch_waits_for_is_named_and_the_others_counted() -> None:
    batch, said = messages([17, 18, 19]), list[str]()
    slow = SlowCalls(lambda row: batch.slice(row, 1), 900.0, said.append)
    slow.look({}, 10_000.0)
    slow.look({0: 0.0, 1: -0.5}, SLOW_S - 1.0)
    assert said == []
    slow.look({0: 5.0, 1: 0.0, 2: SLOW_S}, SLOW_S + 5.0)
    assert said == [
        "lakemq: a call of the handler has been under way for 65 s: topic orders, broker_name broker-a, "
        "queue_id 3, queue_offset 18, attempt 2, and 1 other as long; the outcomes of its batch wait for it "
        "(--consume-timeout 900 s)"
    ]


def test_it_is_said_again_when_it_has_taken_twice_as_long() -> None:
    batch, said = messages([17, 18]), list[str]()
    slow = SlowCalls(lambda row: batch.slice(row, 1), 900.0, said.append)
    at = []
    for now in range(901):
        before = len(said)
        slow.look({0: 0.0} if now < 300 else {1: 250.0}, float(now))
        at += [now] * (len(said) - before)
    assert at == [60, 120, 240, 730], "of another call only when it takes longer than was said"


def test_a_call_with_many_messages_is_named_by_its_first() -> None:
    said = list[str]()
    SlowCalls(lambda call: messages([call, 8, 9]), 900.0, said.append).look({7: 0.0}, 100.0)
    assert "queue_offset 7, attempt 2, the first of 3 messages; the outcomes" in said[0]


def test_a_watch_says_it_on_the_workers_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    now, looked = [0.0], threading.Event()
    slow = SlowCalls(lambda row: messages([17]), 900.0)

    def look(began: Mapping[int, float], at: float) -> None:
        slow.look(began, at)
        if at > SLOW_S:
            looked.set()

    with Watchdog(900.0, on_late=lambda timeout_s: None, on_look=look, clock=lambda: now[0]) as watch:
        watch.begin(0)
        now[0] = slow_calls.SLOW_S + 1
        assert looked.wait(DEADLINE_S)
        watch.end(0)
    assert "under way for 61 s: topic orders" in capsys.readouterr().err


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_handler_that_takes_long_is_named_where_it_is_called(
    vectorised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, heard = list[str](), threading.Event()

    def hear(line: str) -> None:
        said.append(line)
        heard.set()

    def handle(_: Any) -> None:
        assert heard.wait(DEADLINE_S)

    monkeypatch.setattr(slow_calls, "SLOW_S", 0.001)
    monkeypatch.setattr(slow_calls, "_on_stderr", hear)
    handler = OpenedHandler(LoadedHandler(handle, vectorised))
    results = invoke_here(
        handler,
        messages([17]),
        RetryPolicy.of("1s", [1_000], 16),
        Before.nothing(1),
        HandlerHost(concurrency=1, timeout_s=2 * DEADLINE_S),
    )
    assert results.verdict is None, "acknowledged"
    assert "topic orders, broker_name broker-a, queue_id 3, queue_offset 17, attempt 2;" in said[0]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("closed")])
def test_where_nobody_hears_it_the_call_is_watched_all_the_same(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    monkeypatch.setattr("sys.stderr", Deaf())
    SlowCalls(lambda row: messages([17]), 900.0).look({0: 0.0}, 100.0)


def test_a_call_that_has_ended_meanwhile_is_not_named() -> None:
    said = list[str]()
    SlowCalls(lambda row: None, 900.0, said.append).look({0: 0.0}, 100.0)
    assert said == []
