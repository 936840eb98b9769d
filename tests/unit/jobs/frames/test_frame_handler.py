"""A SELECT in a file, and what an error of Spark says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.frames.frame_handler import FrameHandler, sql_handler
from jobs.frames.spark_failure import described, failure_of, raised_in_worker
from store_native.errors import InvalidRequest

OF_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "shop.py", line 7, in charge
    raise Refused(text)
shop.errors.Refused: card: refused
by the bank

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff"])
def test_a_file_without_a_select_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "verdicts.sql").write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"verdicts\.sql is"):
        sql_handler(tmp_path / "verdicts.sql")


def test_the_error_of_a_worker_is_the_users_own() -> None:
    assert raised_in_worker(OF_A_WORKER) == ("Refused", "card: refused\nby the bank")
    outcome = failure_of(RuntimeError(OF_A_WORKER))
    assert (outcome.verdict, outcome.error_type) == ("RETRY", "Refused")
    assert outcome.error_text == "card: refused\nby the bank"


def test_of_a_stack_of_javas_the_innermost_cause_says_why() -> None:
    stack = """An error occurred while calling o7.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat java.base/java.lang.Thread.run
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt
"""
    outcome = failure_of(RuntimeError(stack))
    assert outcome.error_type == "SparkException"
    assert outcome.error_text == "Python worker exited unexpectedly (crashed)."


@pytest.mark.parametrize(
    "text", ["", "no table", "Traceback (most recent call last):", "Traceback (most recent call last):\n  F"]
)
def test_a_text_without_a_python_error_is_taken_as_it_is(text: str) -> None:
    assert raised_in_worker(text) is None
    assert failure_of(RuntimeError(text)).error_type == "RuntimeError"


def test_an_error_is_described_in_one_line() -> None:
    assert described(ValueError("its frame\nhas no column")) == "its frame has no column"
    assert described(OSError("gone\n\nJVM stacktrace:\n\tat x")) == "OSError: gone"


def test_a_function_that_ends_the_program_where_it_is_applied_is_refused() -> None:
    def exits(messages: Any) -> Any:
        sys.exit("no config")

    with pytest.raises(InvalidRequest, match=r"shop:exits: .*no config"):
        FrameHandler("shop:exits", exits).check(cast(Any, None))
