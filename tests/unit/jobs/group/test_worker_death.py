"""Which failures of Spark's are the death of a worker, by the texts that Spark 4.2 gave."""

from __future__ import annotations

import pytest

from jobs.group.worker_death import is_worker_death, tries_before

LOST = "Job aborted due to stage failure: Task 0 in stage 1.0 failed {} times, most recent failure: Lost task"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", True),
        ("EOFException occurred while reading the port number from lakemq.spark_daemon's stdout", True),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", True),
        ("ValueError: no licence", False),
        ("java.io.EOFException", False),
    ],
)
def test_a_death_is_known_by_what_spark_says(text: str, is_one: bool) -> None:
    assert is_worker_death(RuntimeError(text)) is is_one


@pytest.mark.parametrize(("text", "tries"), [(LOST.format(4), 4), (LOST.format(1), 1), ("other", 1)])
def test_how_often_spark_tried_is_what_it_says(text: str, tries: int) -> None:
    assert tries_before(RuntimeError(text)) == tries
