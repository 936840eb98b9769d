"""Waiting for watermarks, by rules: a scripted store moves its marks, a clock moves when it is told to.

Contract: a waiter hears that its message is safe only when it is flushed and dispatched, and then at once;
it hears exactly one thing, at the latest when its time is over, the store is poisoned or the broker stops;
then nothing is counted as waiting. One timer serves all, and the store is listened to only while somebody
waits. The loop, its timers and the eventfd are real.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ingest_api.broker.flush_wait import FlushWaiter, Outcome
from ingest_api.broker.store_events import StoreEvents
from store_native import Store
from store_native.errors import Closed
from tests.support.examples import examples

TIMEOUT_S = 5


class ScriptedStore:
    """Watermarks that move when a test says so, and the eventfd that tells of it."""

    def __init__(self) -> None:
        self.appended = self.flushed = self.dispatched = 0
        self.poisoned: str | None = None
        self.asked = 0
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def progress_fd(self) -> int:
        return self._fd

    def watermarks(self) -> tuple[int, int, int, int]:
        return self.appended, self.flushed, self.dispatched, self.flushed

    def flush_soon(self) -> None:
        self.asked += 1

    def say(self) -> None:
        os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        os.close(self._fd)


class ScriptedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still until a test moves it, and which runs as far as it can at that time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[float] = []
        super().__init__()

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]  # the same, of callbacks without types
        self, when: float, callback: Callable[..., Any], *args: Any, **named: Any
    ) -> asyncio.TimerHandle:
        self.timers.append(when)

        def fire() -> None:
            self.timers.remove(when)
            callback(*args)

        return super().call_at(when, fire, **named)

    def turn(self) -> None:
        for _ in range(2):  # what is due, and what that resolves
            self.call_soon(self.stop)
            self.run_forever()


@dataclass(eq=False)
class Waiting:
    """One who waits, and what it was notified of."""

    end_offset: int
    due: float
    future: asyncio.Future[bool] | None = None
    notified: list[Outcome] = field(default_factory=list)
    gone: bool = False

    def outcomes(self) -> list[Outcome]:
        if self.future is None or not self.future.done() or self.future.cancelled():
            return self.notified
        error = self.future.exception()
        assert error is None or isinstance(error, Closed)
        return [self.future.result() if error is None else error]


class FlushWaits(RuleBasedStateMachine):
    """Appends come back in any order, marks move, clients leave, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = ScriptedLoop()
        self.store = ScriptedStore()
        self.appends: list[int] = []
        self.waiting: list[Waiting] = []
        self.closed = False

    @initialize(sync_flush=st.booleans(), before=st.booleans())
    def open(self, sync_flush: bool, before: bool) -> None:
        self.sync_flush = sync_flush
        if before:  # a store with messages in it
            self.store.appended = self.store.flushed = self.store.dispatched = 10
            self.appends.append(10)
        self.events = StoreEvents(cast(Store, self.store), self.loop)
        self.waiter = FlushWaiter(
            cast(Store, self.store), self.events, self.loop, sync_flush=sync_flush, timeout_s=TIMEOUT_S
        )

    # what the store does

    @precondition(lambda self: self.store.poisoned is None and not self.closed)
    @rule(size=st.integers(1, 3), how_many=st.integers(1, 3))
    def append(self, size: int, how_many: int) -> None:
        for _ in range(how_many):
            self.store.appended += size
            self.appends.append(self.store.appended)

    @precondition(lambda self: self.store.poisoned is None and not self.closed)
    @rule(by=st.integers(1, 9))
    def flush(self, by: int) -> None:
        self.store.flushed = min(self.store.flushed + by, self.store.appended)
        self.moved()

    @precondition(lambda self: self.store.poisoned is None and not self.closed)
    @rule(by=st.integers(1, 9))
    def dispatch(self, by: int) -> None:
        # What is flushed at once can be dispatched only then; else neither waits for the other.
        end = self.store.flushed if self.sync_flush else self.store.appended
        self.store.dispatched = min(self.store.dispatched + by, end)
        self.moved()

    @precondition(lambda self: self.store.poisoned is None and not self.closed and self.is_used())
    @rule()
    def poison(self) -> None:
        self.store.poisoned = "fsync failed"
        self.moved()

    def is_used(self) -> bool:
        """Whether somebody waits, or many have: a store that fails before has little to show."""
        return bool(self.waiting) or self.store.appended > 9

    def moved(self) -> None:
        self.store.say()
        self.loop.turn()
        assert self.events.listening == (self.waiter.waiting > 0)

    # what the broker does

    @precondition(lambda self: self.appends and not self.closed)
    @rule(data=st.data(), by_call=st.booleans())
    def wait_send(self, data: st.DataObject, by_call: bool) -> None:
        end_offset = self.take(data)
        self.wait(end_offset, self.safe(end_offset) or not self.sync_flush, by_call, self.waiter.wait_send)

    @precondition(lambda self: self.appends and not self.closed)
    @rule(data=st.data())
    def wait_change(self, data: st.DataObject) -> None:
        end_offset = self.take(data)
        self.wait(end_offset, self.safe(end_offset), False, self.waiter.wait_change)

    def take(self, data: st.DataObject) -> int:
        """The end of an append that comes back now; a large one, of a worker thread, may come back late."""
        return self.appends.pop(data.draw(st.integers(0, len(self.appends) - 1)))

    def wait(
        self,
        end_offset: int,
        safe: bool,
        by_call: bool,
        wait: Callable[[int], asyncio.Future[bool] | None],
    ) -> None:
        one = Waiting(end_offset, self.loop.now + TIMEOUT_S)
        before = self.waiter.waiting
        failure = ""
        try:
            if not by_call:
                one.future = wait(end_offset)
                waits = one.future is not None
            elif waits := not self.waiter.is_durable(end_offset):
                self.waiter.on_durable(end_offset, one.notified.append)
        except Closed as error:
            failure = error.code
        if failure:
            assert failure == "STORE_POISONED"
            assert self.store.poisoned is not None
            assert self.waiter.waiting == before
            return
        if waits:
            self.waiting.append(one)
        else:
            assert safe, "said to be safe, and is not"
        self.loop.turn()

    # what the world does

    @precondition(lambda self: any(one.future for one in self.open_waits()))
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from([one for one in self.open_waits() if one.future]))
        assert one.future is not None
        one.future.cancel()
        one.gone = True
        self.loop.turn()

    @rule(seconds=st.integers(1, TIMEOUT_S))
    def time_passes(self, seconds: int) -> None:
        self.loop.now += seconds
        self.loop.turn()

    @precondition(lambda self: not self.closed and self.waiting)
    @rule()
    def stop(self) -> None:
        self.waiter.close()
        self.closed = True
        self.loop.turn()
        assert not self.open_waits()
        assert self.waiter.waiting == 0

    # what always holds

    @invariant()
    def each_is_notified_of_what_is_true_and_in_time(self) -> None:
        for one in self.waiting:
            outcomes = one.outcomes()
            assert len(outcomes) <= 1, "told twice"
            if one.gone:
                assert not one.notified
            elif not outcomes:
                assert not self.safe(one.end_offset), "safe, and not told so"
                assert self.loop.now < one.due, "its time is over, and it still waits"
                assert self.store.poisoned is None, "the store failed, and it still waits"
                assert not self.closed, "the broker stopped, and it still waits"
            elif outcomes[0] is True:
                assert self.safe(one.end_offset), "told to be safe, and is not"
            elif outcomes[0] is False:
                assert self.loop.now >= one.due, "given up before its time"
            elif self.store.poisoned is not None:
                assert outcomes[0].code == "STORE_POISONED"
                assert "fsync failed" in outcomes[0].detail
            else:
                assert self.closed
                assert outcomes[0].code == "STORE_CLOSED"
        # A future ends once by itself; who is called is watched for a second call.
        self.waiting = [one for one in self.waiting if not one.outcomes() or one.notified]

    @invariant()
    def what_is_counted_as_waiting_waits(self) -> None:
        held = len(self.open_waits())
        left = sum(one.gone for one in self.waiting)
        assert held <= getattr(self, "waiter", _NOBODY).waiting <= held + left

    @invariant()
    def one_timer_serves_all(self) -> None:
        assert len(self.loop.timers) <= 1

    def safe(self, end_offset: int) -> bool:
        return end_offset <= min(self.store.flushed, self.store.dispatched)

    def open_waits(self) -> list[Waiting]:
        return [one for one in self.waiting if not one.gone and not one.outcomes()]

    def teardown(self) -> None:
        if hasattr(self, "waiter"):
            self.loop.now += TIMEOUT_S
            self.loop.turn()
            self.each_is_notified_of_what_is_true_and_in_time()
            assert not self.open_waits()
            assert self.waiter.waiting == 0
            assert not self.loop.timers, "a timer nobody waits for"
            self.events.close()
        self.store.close()
        self.loop.close()


class _Nobody:
    waiting = 0


_NOBODY = _Nobody()


def test_each_wait_ends_once_and_positively_only_when_the_message_can_be_read() -> None:
    run_state_machine_as_test(
        FlushWaits, settings=settings(max_examples=examples(100), stateful_step_count=25)
    )


def _note(notified: list[int], end_offset: int, outcome: Outcome) -> None:
    assert outcome is True
    notified.append(end_offset)


def waits() -> FlushWaits:
    """A broker with sync flush and three appends of a byte, none of them flushed."""
    broker = FlushWaits()
    broker.open(sync_flush=True, before=False)
    broker.store.appended = 3
    return broker


def test_a_pass_of_the_loop_asks_for_one_flush_of_all_it_appended() -> None:
    broker = waits()
    asked = []
    for _ in range(2):
        for _ in range(3):
            broker.waiter.flush_soon()
        asked.append(broker.store.asked)
        broker.loop.call_soon(broker.loop.stop)
        broker.loop.run_forever()
    assert asked == [0, 1], "not before the pass is over, and once a pass"
    assert broker.store.asked == 2
    broker.teardown()


@pytest.mark.parametrize("asks_replicas", [False, True])
def test_with_asynchronous_flush_one_is_asked_for_only_where_replicas_wait(asks_replicas: bool) -> None:
    broker = FlushWaits()
    broker.open(sync_flush=False, before=False)
    broker.waiter.in_reach = (lambda: True) if asks_replicas else None
    broker.waiter.flush_soon()
    broker.loop.call_soon(broker.loop.stop)
    broker.loop.run_forever()
    assert broker.store.asked == asks_replicas
    broker.teardown()


def test_an_append_that_comes_back_late_is_notified_before_the_ones_behind_it() -> None:
    broker = waits()
    notified: list[int] = []
    for end_offset in (3, 1, 2):
        broker.waiter.on_durable(end_offset, partial(_note, notified, end_offset))
    for mark in (1, 2, 3):
        broker.store.flushed = broker.store.dispatched = mark
        broker.moved()
        assert notified == list(range(1, mark + 1))
    broker.teardown()


def test_each_waiter_has_a_time_of_its_own_and_one_timer_serves_all() -> None:
    broker = waits()
    futures = []
    send, change = broker.waiter.wait_send, broker.waiter.wait_change
    for end_offset, wait in ((1, send), (2, change), (3, send)):
        futures.append(wait(end_offset))
        broker.loop.now += 1
        broker.loop.turn()
    for n, future in enumerate(futures):
        assert future is not None
        broker.loop.now = 1_000.0 + TIMEOUT_S + n - 0.5
        broker.loop.turn()
        assert not future.done()
        broker.loop.now += 0.5
        broker.loop.turn()
        assert future.result() is False
        assert broker.waiter.waiting == 2 - n
    for end_offset in (2, 3):
        assert send(end_offset) is not None
        assert len(broker.loop.timers) == 1
        broker.loop.now += TIMEOUT_S - 1
        broker.loop.turn()
    assert broker.waiter.waiting == 1
    assert send(3) is not None
    assert len(broker.loop.timers) == 1
    broker.teardown()


def test_what_is_safe_already_is_not_waited_for() -> None:
    broker = waits()
    broker.store.flushed = broker.store.dispatched = 2
    broker.store.say()  # while nobody waits, nobody listens
    first = broker.waiter.wait_send(2)
    assert first is not None
    broker.loop.turn()
    assert first.result() is True
    for wait in (broker.waiter.wait_send, broker.waiter.wait_change):
        assert wait(2) is None
        assert wait(3) is not None
    assert broker.waiter.waiting == 2
    broker.teardown()


def test_who_comes_after_the_store_failed_is_refused_at_once() -> None:
    broker = waits()
    first, change = broker.waiter.wait_send(1), broker.waiter.wait_change(2)
    broker.poison()
    assert first is not None
    assert change is not None
    for future in (first, change):
        error = future.exception()
        assert isinstance(error, Closed)
        assert error.code == "STORE_POISONED"
    for late in (broker.waiter.wait_send, broker.waiter.wait_change):
        with pytest.raises(Closed, match="fsync failed; whether") as refused:
            late(3)
        assert refused.value.code == "STORE_POISONED"
    assert broker.waiter.waiting == 0
    broker.teardown()
