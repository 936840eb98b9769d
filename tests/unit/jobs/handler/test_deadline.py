"""What has not begun when a task's time is up: it is put off, wherever and however the handler is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import ACK, DEAD, PARKED, RETRY
from jobs.handler.call_order import CallOrder
from jobs.handler.deadline import NEVER, Deadline
from jobs.handler.invocation import HandlerHost, invoke, invoke_here
from jobs.handler.isolated_handler import IsolatedHandler
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.results import HandlerResults, concat, of_calls
from jobs.handler.verdicts import NOT_CALLED, PUT_OFF, Outcome
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Verdict

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)


class SetClock:
    """Says the time it was set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def numbered(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % row for row in range(rows)], pa.binary())})


def verdicts(results: HandlerResults) -> list[str]:
    return [ACK] * results.rows if results.verdict is None else list(results.verdict.to_pylist())


def put_off(results: HandlerResults) -> list[int]:
    marks = [] if results.put_off is None else results.put_off.to_pylist()
    return [row for row, mark in enumerate(marks) if mark]


def test_the_time_runs_from_the_first_call() -> None:
    clock = SetClock()
    deadline = Deadline(30.0, clock)
    clock.now += 1_000.0  # a handler that took long to open
    assert (deadline.passed, deadline.left_s) == (False, 30.0)
    deadline.begin()
    clock.now += 10.0
    deadline.begin()
    assert (deadline.passed, deadline.left_s) == (False, 20.0)
    clock.now += 19.9
    assert not deadline.passed
    clock.now += 0.1
    assert (deadline.passed, deadline.left_s) == (True, 0.0)
    clock.now += 5.0
    assert deadline.left_s == 0.0


def test_without_a_limit_it_never_passes() -> None:
    clock = SetClock()
    deadline = Deadline(None, clock)
    deadline.begin()
    clock.now += 1e9
    assert (deadline.passed, deadline.left_s) == (False, None)
    NEVER.begin()
    assert (NEVER.passed, NEVER.left_s) == (False, None)


def sync_handler(clock: SetClock, called: list[int]) -> LoadedHandler:
    def handle(message: Any) -> None:
        called.append(int(message.body))
        clock.now += 10.0

    return LoadedHandler(handle, False)


def async_handler(clock: SetClock, called: list[int]) -> LoadedHandler:
    async def handle(message: Any) -> None:
        called.append(int(message.body))
        clock.now += 10.0

    return LoadedHandler(handle, False, is_async=True)


@pytest.mark.parametrize("made", [sync_handler, async_handler])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_calls_are_begun_until_the_time_is_up_and_the_rest_comes_again_soon(
    made: Callable[[SetClock, list[int]], LoadedHandler], concurrency: int
) -> None:
    clock, called = SetClock(), list[int]()
    deadline = Deadline(30.0, clock)
    with closing(OpenedHandler(made(clock, called))) as handler:
        results = invoke_here(
            *(handler, numbered(8), POLICY, None, HandlerHost(concurrency)), deadline=deadline
        )
        later = invoke_here(
            *(handler, numbered(2), POLICY, None, HandlerHost(concurrency)), deadline=deadline
        )
    # Of several threads each may have looked at the clock just before.
    assert called == list(range(len(called)))
    assert 3 <= len(called) < 3 + concurrency
    assert verdicts(results) == [ACK] * len(called) + [RETRY] * (8 - len(called))
    assert put_off(results) == list(range(len(called), 8))
    assert put_off(later) == [0, 1]
    assert results.reason is not None
    assert results.reason.to_pylist()[-1] == "put off: its batch took too long, no call had begun"
    assert results.started_at.to_pylist()[-1] is None


def test_in_lanes_all_that_has_not_begun_waits_in_the_ledger() -> None:
    clock, called = SetClock(), list[int]()
    order = CallOrder(((0, 1), (2, 3), (4,), (5, 6)), given_up=frozenset({3, 4, 5}))
    with closing(OpenedHandler(sync_handler(clock, called))) as handler:
        results = invoke_here(
            *(handler, numbered(7), POLICY, None, HandlerHost(1), order), deadline=Deadline(20.0, clock)
        )
    assert called == [0, 2]
    assert verdicts(results) == [ACK, PARKED, ACK, PARKED, PARKED, PARKED, PARKED]
    assert results.put_off is None


def test_an_order_keeps_what_it_says_of_rows_that_are_not_called() -> None:
    at_once = CallOrder.at_once(range(4))
    kept = (at_once, at_once.only([1, 2]), at_once.numbered([0, 1, 2, 3]), at_once.left({0: None}))
    assert {order.otherwise for order in kept} == {PUT_OFF}
    assert CallOrder(((0, 1), (2, 3))).only([1]).otherwise is NOT_CALLED


def test_results_of_some_rows_take_the_place_of_others() -> None:
    results = of_calls(range(4), {1: (5, 6, None)}, PUT_OFF, 7)
    dead = of_calls([0, 2], {0: (8, 9, Outcome(DEAD, reason="no")), 2: (8, 9, None)}, PUT_OFF, 9)
    replaced = results.replaced([0, 2], dead)
    assert verdicts(replaced) == [DEAD, ACK, ACK, RETRY]
    assert put_off(replaced) == [3]
    assert replaced.started_at.cast(pa.int64()).to_pylist() == [8, 5, 8, None]
    assert replaced.finished_at.cast(pa.int64()).to_pylist() == [9, 6, 9, 7]


class Vectorised:
    """A target whose handler gives up every message, and lets ten seconds pass."""

    def __init__(self, clock: SetClock, called: list[int]) -> None:
        self._clock, self._called = clock, called

    def load(self) -> LoadedHandler:
        def handle(batch: pa.RecordBatch) -> Verdict:
            self._called.append(batch.num_rows)
            self._clock.now += 10.0
            return Verdict.dead("no")

        return LoadedHandler(handle, True)


def test_a_vectorised_handler_gets_whole_batches_until_the_time_is_up() -> None:
    clock, called = SetClock(), list[int]()
    target, deadline = Vectorised(clock, called), Deadline(15.0, clock)

    def handled(rows: int) -> HandlerResults:
        return invoke(target, numbered(rows), POLICY, None, HandlerHost(), deadline=deadline)  # type: ignore[arg-type]

    pieces = [handled(3), handled(4), handled(5)]
    assert called == [3, 4]
    assert verdicts(concat(pieces)) == [DEAD] * 7 + [RETRY] * 5
    assert put_off(concat(pieces)) == list(range(7, 12))


def test_a_process_of_its_own_begins_none_when_the_time_is_up() -> None:
    target = HandlerTarget("tests.unit.jobs.handler.handlers_that_end:dies")
    clock = SetClock()
    deadline = Deadline(30.0, clock)
    with closing(IsolatedHandler(target, POLICY, 1, 60.0)) as handler:
        on_time = handler.call_rows(numbered(2), CallOrder.at_once(range(2)), deadline=deadline)
        assert put_off(on_time) == []
        clock.now += 30.0  # this process's clock; the other one hears that nothing is left
        late = handler.call_rows(numbered(4), deadline=deadline)
        in_lanes = handler.call_rows(
            numbered(3), CallOrder(((0, 1), (2,)), frozenset({0})), deadline=deadline
        )
    assert verdicts(late) == [RETRY] * 4
    assert put_off(late) == [0, 1, 2, 3]
    assert verdicts(in_lanes) == [PARKED] * 3


def test_the_process_itself_looks_at_the_time_and_a_call_that_ended_it_is_found_all_the_same() -> None:
    target = HandlerTarget("tests.unit.jobs.handler.handlers_that_end:dies")
    bodies = [b"exit", b"a", b"b"]
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    # So short that it is up as soon as the first call has begun.
    with closing(IsolatedHandler(target, POLICY, 1, 60.0)) as handler:
        results = handler.call_rows(batch, CallOrder.at_once(range(3)), deadline=Deadline(1e-9))
    assert results.reason is not None
    assert results.reason.to_pylist() == ["worker died (exit status 7)", PUT_OFF.reason, PUT_OFF.reason]
    assert put_off(results) == [1, 2]
