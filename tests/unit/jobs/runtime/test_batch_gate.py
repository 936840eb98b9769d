"""A stop lets the batch inside finish and no other begin."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from jobs.runtime.batch_gate import BatchGate, JobStopped


def test_a_closed_gate_lets_the_batch_inside_finish_and_then_refuses_what_it_held_back() -> None:
    gate, inside, leave = BatchGate(), threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        with gate.batch():
            inside.set()
            leave.wait(10)
            done.append("inside")

    def come_late() -> None:
        with suppress(JobStopped), gate.batch():
            done.append("late")

    first, late = threading.Thread(target=work), threading.Thread(target=come_late)
    first.start()
    assert inside.wait(10)
    gate.close()
    late.start()
    assert not gate.await_empty(timeout_s=0)
    leave.set()
    assert gate.await_empty(timeout_s=10)
    assert late.is_alive(), "held back, not refused while a batch is inside"
    gate.refuse()
    for thread in (first, late):
        thread.join(10)
        assert not thread.is_alive()
    assert done == ["inside"]
    with pytest.raises(JobStopped), gate.batch():
        pass


def test_who_waits_hears_that_its_batch_is_given_up() -> None:
    gate = BatchGate()
    assert not gate.await_given_up(timeout_s=0)
    waiting = threading.Thread(target=lambda: heard.append(gate.await_given_up(timeout_s=30)))
    heard: list[bool] = []
    waiting.start()
    gate.give_up()
    waiting.join(10)
    assert heard == [True]
