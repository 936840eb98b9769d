"""A stream is started again where only its source's Python process was at fault, and not for ever.

Contract: a start that came too late and the end of that process are told from other failures by what the JVM
says; starts without a batch in between are bounded, and the last failure is said.
"""

from __future__ import annotations

import types
from typing import Any, cast

import pytest

from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.run_loop import RunLoop
from jobs.runtime.started_stream import MOST_STARTS, StartedStream
from jobs.runtime.stream_failure import is_planner_death, is_start_too_late, reason_of
from store_native.errors import LakeMQError

IN_THE_RUNNER = (
    "\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)\n"
    "\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(x:2)\n"
)
ELSEWHERE = "\tat org.apache.hadoop.fs.RawLocalFileSystem.write(RawLocalFileSystem.java:1)\n"
DEATHS = [
    "java.io.IOException: Broken pipe\n" + IN_THE_RUNNER,
    "java.io.EOFException\n" + IN_THE_RUNNER,
    "java.net.SocketException: Connection reset\n" + IN_THE_RUNNER,
    "org.apache.spark.SparkException: x\n" + ELSEWHERE + "Caused by: java.io.EOFException\n" + IN_THE_RUNNER,
]
OTHERS = [
    "java.io.IOException: No space left on device\n" + ELSEWHERE,
    "org.apache.spark.SparkException: the source failed\n" + IN_THE_RUNNER,
    "java.io.IOException: No space left on device\n" + ELSEWHERE + "Caused by: x.Error: y\n" + IN_THE_RUNNER,
    "",
]


class Cause(Exception):
    """What PySpark has of the JVM's cause."""

    def __init__(self, stack: str) -> None:
        super().__init__("x")
        self._stackTrace = stack


class Failed(Exception):
    """A failure of a query with its cause."""

    def __init__(self, stack: str, text: str = "[STREAM_FAILED] Broken pipe") -> None:
        super().__init__(text)
        self._cause = Cause(stack)


class Query:
    """A query that has failed, after a batch or without one."""

    isActive = False
    name = "g group"

    def __init__(self, failed: Exception | None, *, progress: bool) -> None:
        self._failed = failed
        self.lastProgress = {"batchId": 1} if progress else None

    def exception(self) -> Exception | None:
        """Why."""
        return self._failed

    def stop(self) -> None:
        """It has ended."""


@pytest.mark.parametrize("stack", DEATHS)
def test_the_end_of_the_process_that_plans_is_known(stack: str) -> None:
    assert is_planner_death(Failed(stack))
    assert not is_start_too_late(Failed(stack))
    said = reason_of(cast(Any, Failed(stack)))
    assert said == "the process in which its source plans ended again and again: [STREAM_FAILED] Broken pipe"


def test_starts_that_came_too_late_are_said_to_be_that() -> None:
    failed = Failed(
        "org.apache.spark.SparkException: x\n", "[STREAM_FAILED] Python worker failed to connect back."
    )
    assert is_start_too_late(failed)
    assert not is_planner_death(failed)
    said = (
        "the process in which its source plans did not start in time, again and again: [STREAM_FAILED] Python"
    )
    assert reason_of(cast(Any, failed)).startswith(said)


@pytest.mark.parametrize("stack", OTHERS)
def test_other_failures_are_not_taken_for_it(stack: str) -> None:
    assert not is_planner_death(Failed(stack))
    assert not is_planner_death(RuntimeError(stack))


def started(queries: list[Query]) -> tuple[StartedStream, list[Query]]:
    """A stream whose starts give these queries, one after the other, and those that are left."""
    left = list(queries)
    return StartedStream(lambda: cast(Any, left.pop(0))), left


def test_starts_without_a_batch_in_between_are_bounded() -> None:
    dies = [Query(Failed(DEATHS[0]), progress=False) for _ in range(2 * MOST_STARTS)]
    stream, left = started(dies)
    while stream.goes_on():
        pass
    assert len(left) == MOST_STARTS
    assert isinstance(stream.failure(), Failed)


def test_a_process_that_ends_now_and_then_is_no_reason_to_give_up() -> None:
    dies = [Query(Failed(DEATHS[0]), progress=True) for _ in range(3 * MOST_STARTS)]
    stream, left = started([*dies, Query(None, progress=True)])
    while stream.goes_on():
        pass
    assert not left
    assert stream.failure() is None


@pytest.mark.parametrize("progress", [False, True])
def test_a_stop_that_comes_before_the_next_start_is_no_failure(progress: bool) -> None:
    stream, left = started([Query(Failed(DEATHS[0]), progress=progress)])
    loop = RunLoop(cast(Any, types.SimpleNamespace()), BatchGate())
    loop.stop()
    assert not loop.run([stream])
    assert not left, "nothing is started behind a stop"


def test_another_failure_is_one_behind_a_stop_too() -> None:
    stream, _ = started([Query(Failed(OTHERS[0]), progress=True)])
    loop = RunLoop(cast(Any, types.SimpleNamespace()), BatchGate())
    loop.stop()
    with pytest.raises(LakeMQError, match="No space left"):
        loop.run([stream])


def test_another_failure_ends_the_stream() -> None:
    stream, left = started([Query(Failed(OTHERS[0]), progress=True)])
    assert not stream.goes_on()
    assert not left
