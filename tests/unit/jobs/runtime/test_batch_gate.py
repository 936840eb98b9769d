"""A stop lets the batch inside finish and no other begin."""

from __future__ import annotations

import threading
import traceback
from contextlib import suppress

import pytest

from jobs.runtime.batch_gate import BatchGate, JobStopped
from tests.support.waiting import wait_until


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


def test_a_batch_that_rests_is_known_to_and_ended_by_a_stop() -> None:
    gate = BatchGate()
    inside = threading.Event()
    ended: list[str] = []

    def wait() -> None:
        with gate.batch():
            gate.rest(0)
            inside.set()
            try:
                gate.rest(60)
            except JobStopped as error:
                ended.append(str(error))
                raise

    def run() -> None:
        with pytest.raises(JobStopped):
            wait()

    resting = threading.Thread(target=run)
    resting.start()
    assert inside.wait(10)
    gate.close()
    wait_until(lambda: gate.all_rest, 10)
    gate.give_up()
    resting.join(10)
    assert ended == ["the job is stopping; what is left of this batch runs at the next start"]
    assert gate.await_empty(0)
    assert not gate.all_rest


def test_a_failure_of_a_batch_that_was_given_up_is_told_without_its_java_stack() -> None:
    gate = BatchGate()

    def run() -> None:
        with gate.batch():
            gate.give_up()
            raise RuntimeError("An error occurred while calling o1.save: a Java stack")

    with pytest.raises(JobStopped) as ended:
        run()
    # As Py4J tells Spark, which searches the text.
    told = "".join(traceback.format_exception(ended.value))
    assert "the job stopped without this batch" in told
    assert "Java stack" not in told


def test_a_failure_of_any_other_batch_is_told_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="a Java stack"), BatchGate().batch():
        raise RuntimeError("a Java stack")
