"""The order of a start: what was started ends where something after it cannot start."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from jobs.runtime.batch_gate import BatchGate, JobStopped
from jobs.runtime.run_loop import RunLoop, _first_failure
from store_native.errors import Unavailable
from tests.support.waiting import DEADLINE_S


class Query:
    """A query that runs until it is stopped."""

    isActive = True
    name = "g group"

    def stop(self) -> None:
        """Ends it."""
        self.isActive = False


def test_streams_that_started_are_ended_when_a_later_one_cannot_start() -> None:
    gate = BatchGate()
    loop = RunLoop(cast(Any, object()), gate)
    first = Query()

    def fails() -> StreamingQuery:
        raise Unavailable("SERVICE_NOT_AVAILABLE", "whom to send to is not known")

    def never() -> StreamingQuery:
        raise AssertionError("it was started behind one that could not")

    with pytest.raises(Unavailable, match="whom to send to"):
        loop.start([lambda: cast(Any, first), fails, never])
    assert not first.isActive
    with pytest.raises(JobStopped), gate.batch():
        pass


IN_THE_JVM = "[STREAM_FAILED] x\npy4j.protocol.Py4JJavaError: An error occurred while calling o1.save."


class FailedStream:
    """A stream that ended with an error of Spark's."""

    def __init__(self, text: str) -> None:
        self.query = Query()
        self._text = text

    def failure(self) -> StreamingQueryException:
        return StreamingQueryException(self._text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] an unexpected Delta table (id = 1)\n\tat x.y",
            "the ledger was made anew since this checkpoint was: delete the checkpoint, and the group "
            "goes on where ledger and broker say",
        ),
        ("[STREAM_FAILED] x\nTraceback\n  ValueError: no licence\n\tat x.y", "ValueError: no licence"),
        (
            f"{IN_THE_JVM}\n"
            ": org.apache.spark.SparkException: Job aborted.\n\tat x.y\nCaused by: "
            "org.apache.spark.SparkException: Python worker exited unexpectedly\n"
            "Caused by: java.io.EOFException\n"
            "=== Streaming Query ===\nIdentifier: [id = 1]",
            "org.apache.spark.SparkException: Python worker exited unexpectedly",
        ),
        (
            f"{IN_THE_JVM}\n\tat x.y",
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.",
        ),
        (
            "PythonException: Traceback (most recent call last):\n  File x\nlakemq.client.errors.Closed: "
            "STORE_POISONED: the store is read-only\n\tat x.y",
            "lakemq.client.errors.Closed: STORE_POISONED: the store is read-only",
        ),
        ("[X]\nshop.stock.NotReady: no stock: wait\n\tat x.y", "shop.stock.NotReady: no stock: wait"),
        (
            "[X]\nValueError: the shop said\nnote: its hours\nshop.hours: 9 to 5\nSee Also: nothing",
            "ValueError: the shop said",
        ),
        ("[STREAM_FAILED] nothing that names an error", "[STREAM_FAILED] nothing that names an error"),
    ],
)
def test_a_stream_that_failed_says_why_in_one_sentence(text: str, said: str) -> None:
    assert _first_failure([cast(Any, FailedStream(text))]) == f"the stream 'g group' failed: {said}"


def test_a_batch_that_is_given_up_and_does_not_end_is_waited_for_as_long_as_a_stop_may_take() -> None:
    gate = BatchGate()
    inside, go_on = threading.Event(), threading.Event()

    def batch() -> None:
        with gate.batch():
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=batch)
    thread.start()
    try:
        assert inside.wait(DEADLINE_S)
        loop = RunLoop(cast(Any, object()), gate, stop_timeout_s=2.0)
        loop.stop()
        began = time.monotonic()
        given_up: list[float] = []
        loop.run([], give_up=lambda: given_up.append(time.monotonic() - began))
        assert len(given_up) == 1
        assert time.monotonic() - began < 2.0 + 10.0
    finally:
        go_on.set()
        thread.join()
