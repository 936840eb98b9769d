"""The contract with a handler: one verdict per message, and a bad message stays alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.group.handler_invocation import HandlerResults, invoke
from jobs.handler_loader import LoadedHandler
from jobs.retry_policy import RetryPolicy
from lakemq.handler import Verdict

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % i for i in range(rows)], pa.binary())})


def results(function: Any, rows: int = 4, *, vectorised: bool = False) -> HandlerResults:
    return invoke(LoadedHandler(function, vectorised), batch(rows), POLICY)


def verdicts(result: HandlerResults) -> list[str]:
    return ["ACK"] * result.rows if result.verdict is None else result.verdict.to_pylist()


def test_a_row_handler_that_returns_nothing_acknowledges_without_any_verdict_column() -> None:
    result = results(lambda message: None)
    assert result.verdict is None
    assert result.rows == 4
    times = zip(result.started_at.to_pylist(), result.finished_at.to_pylist(), strict=True)
    assert all(started <= finished for started, finished in times)


def test_an_exception_is_a_retry_of_its_own_message_only() -> None:
    def handle(message: Any) -> None:
        if message.body == b"2":
            raise ValueError("never departed")

    result = results(handle)
    assert verdicts(result) == ["ACK", "ACK", "RETRY", "ACK"]
    assert result.error_type is not None
    assert result.error_type.to_pylist() == [None, None, "ValueError", None]
    assert result.error_text is not None
    assert result.error_text[2].as_py() == "never departed"
    assert result.error_trace is not None
    assert "in handle" in result.error_trace[2].as_py()


def test_sys_exit_in_a_handler_does_not_end_the_worker() -> None:
    def handle(message: Any) -> None:
        raise SystemExit(3)

    assert verdicts(results(handle, 1)) == ["RETRY"]


def test_an_error_text_that_is_no_unicode_can_be_stored() -> None:
    def handle(message: Any) -> None:
        raise ValueError("\ud800 lone")

    result = results(handle, 1)
    assert result.error_text is not None
    assert result.error_text[0].as_py() == "? lone"


def test_verdicts_of_a_row_handler_carry_level_and_reason() -> None:
    answers = iter([Verdict.ACK, Verdict.retry(4), Verdict.retry("20s", reason="later"), Verdict.dead("no")])
    result = results(lambda message: next(answers))
    assert verdicts(result) == ["ACK", "RETRY", "RETRY", "DEAD"]
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [None, 4, 3, None]
    assert result.reason is not None
    assert result.reason.to_pylist() == [None, None, "later", "no"]


def test_a_delay_level_above_the_last_clamps() -> None:
    result = results(lambda message: Verdict.retry(99), 1)
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [4]


def test_a_row_handler_that_returns_something_else_is_a_failure_with_that_text() -> None:
    result = results(lambda message: "ok", 1)
    assert verdicts(result) == ["RETRY"]
    assert result.error_text is not None
    assert "None or a Verdict, not str" in result.error_text[0].as_py()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Verdict.ACK,
        [None, None, None, None],
        ["ACK"] * 4,
        pa.array(["ACK"] * 4),
        pa.array([None] * 4, pa.string()),
    ],
)
def test_a_vectorised_handler_that_acknowledges_all_costs_no_verdict_column(answer: Any) -> None:
    assert results(lambda batch: answer, vectorised=True).verdict is None


@pytest.mark.parametrize(
    "answer",
    [
        ["ACK", "RETRY", None, "DEAD"],
        [None, Verdict.retry(), Verdict.ACK, Verdict.dead("no")],
        pa.array(["ACK", "RETRY", None, "DEAD"]),
        pa.chunked_array([["ACK", "RETRY"], ["ACK", "DEAD"]]),
        pa.array(["ACK", "RETRY", "ACK", "DEAD"]).dictionary_encode(),
        pa.table({"verdict": ["ACK", "RETRY", None, "DEAD"]}),
        pa.RecordBatch.from_pydict({"verdict": ["ACK", "RETRY", "ACK", "DEAD"]}),
        pa.array([{"verdict": v} for v in ("ACK", "RETRY", "ACK", "DEAD")]),
    ],
)
def test_every_shape_of_verdicts_says_the_same(answer: Any) -> None:
    assert verdicts(results(lambda batch: answer, vectorised=True)) == ["ACK", "RETRY", "ACK", "DEAD"]


def test_verdict_columns_carry_level_and_reason() -> None:
    answer = pa.table(
        {
            "verdict": ["RETRY", "RETRY", "ACK", "DEAD"],
            "delay_level": [2, None, 1, 99],
            "reason": list("abcd"),
        }
    )
    result = results(lambda batch: answer, vectorised=True)
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [2, None, 1, 4]
    assert result.reason is not None
    assert result.reason.to_pylist() == ["a", "b", "c", "d"]


def test_a_vectorised_handler_that_raises_is_narrowed_down_to_the_bad_message() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        if b"700" in batch.column("body").to_pylist():
            raise KeyError("poison")

    result = results(handle, 1_000, vectorised=True)
    assert [row for row, verdict in enumerate(verdicts(result)) if verdict == "RETRY"] == [700]
    assert result.error_type is not None
    assert result.error_type[700].as_py() == "KeyError"
    assert len(result.started_at) == len(result.finished_at) == 1_000


def test_a_vectorised_handler_that_always_raises_is_not_called_once_per_message() -> None:
    calls = 0

    def handle(batch: pa.RecordBatch) -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError("database is down")

    result = results(handle, 10_000, vectorised=True)
    assert verdicts(result) == ["RETRY"] * 10_000
    assert calls < 150


@pytest.mark.parametrize("answer", [["ACK"], pa.array(["ACK", "WHAT", "ACK", "ACK"]), {"verdict": 1}, "ACK"])
def test_a_result_of_the_wrong_shape_is_a_failure_of_the_messages(answer: Any) -> None:
    result = results(lambda batch: answer if batch.num_rows == 4 else "WHAT", vectorised=True)
    assert verdicts(result) == ["RETRY"] * 4
