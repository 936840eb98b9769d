"""Threads that take turns: what can no longer come fails a test at once, and time passes in order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.turns import Stuck, Turns


def test_time_passes_from_one_that_waits_to_the_next() -> None:
    with Turns() as turns:
        changed, woken = turns.Condition(), []

        def sleep(seconds: float) -> None:
            with changed:
                changed.wait(seconds)
                woken.append((seconds, turns.now - began))

        began = turns.now
        for seconds in (3.0, 1.0, 2.0, 9.0):
            turns.submit(sleep, seconds)
        turns.settle()
        assert woken == []
        turns.pass_time(5.0)
        assert woken == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_lock_is_one_threads_at_a_time_and_a_wait_ends_when_it_is_told(seed: int | None) -> None:
    with Turns(seed) as turns:
        changed, inside = turns.Condition(), [0]
        order: list[int] = []

        def work(number: int) -> None:
            with changed:
                inside[0] += 1
                assert inside == [1]
                inside[0] -= 1
                assert changed.wait_for(lambda: len(order) == number)
                order.append(number)
                changed.notify_all()

        done = [turns.submit(work, number) for number in (2, 0, 1)]
        for one in done:
            turns.result(one)
        assert order == [0, 1, 2]


def test_who_waits_for_what_nobody_does_fails_at_once() -> None:
    with Turns() as turns:
        changed = turns.Condition()

        def wait() -> None:
            with changed:
                changed.wait()

        thread: Any = turns.Thread(target=wait, name="waiting", daemon=True)
        thread.start()
        with pytest.raises(Stuck, match="waiting"):
            thread.join()


def test_what_goes_on_and_on_fails_at_once() -> None:
    with Turns() as turns:
        changed = turns.Condition()

        def look_again() -> None:
            with changed:
                while True:
                    changed.wait(0)

        turns.submit(look_again)
        with pytest.raises(Stuck):
            turns.settle()


def test_a_thread_that_ends_in_an_error_fails_the_test() -> None:
    with Turns() as turns:
        turns.Thread(target=lambda: 1 / 0, name="dividing", daemon=True).start()
        with pytest.raises(AssertionError, match="dividing"):
            turns.settle()
