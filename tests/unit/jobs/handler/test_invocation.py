"""The contract with a handler: one verdict per message, and a bad message stays alone."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from jobs.handler.batch_calls import Before
from jobs.handler.invocation import HandlerHost, invoke_here
from jobs.handler.loader import LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.results import HandlerResults
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Verdict

ONE = HandlerHost(concurrency=1)
POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % i for i in range(rows)], pa.binary())})


def results(function: Any, rows: int = 4, *, vectorised: bool = False) -> HandlerResults:
    return invoke_here(OpenedHandler(LoadedHandler(function, vectorised)), batch(rows), POLICY, host=ONE)


def verdicts(result: HandlerResults) -> list[str]:
    return ["ACK"] * result.rows if result.verdict is None else result.verdict.to_pylist()


def test_a_row_handler_that_returns_nothing_acknowledges_without_any_verdict_column() -> None:
    result = results(lambda message: None)
    assert result.verdict is None
    assert result.rows == 4
    assert result.started_at.type == result.finished_at.type == pa.timestamp("us", "UTC")
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


def errors(result: HandlerResults) -> list[str]:
    assert result.error_text is not None
    return [str(text) for text in result.error_text.to_pylist()]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (["ACK"] * 5, "returned 5 verdicts for 4"),
        (["ACK"] * 3, "returned 3 verdicts for 4"),
        (pa.array(["ACK"] * 5), "returned 5 verdicts for 4"),
        (pa.array(["ACK"] * 3), "returned 3 verdicts for 4"),
        ("ACKS", "returns verdicts, not str"),
        (b"ACKS", "returns verdicts, not bytes"),
        (pa.table({"verdict": ["ACK"] * 4, "why": list("abcd")}), "verdict columns are verdict"),
        (pa.table({"reason": list("abcd")}), "verdict columns are verdict"),
    ],
)
def test_a_wrong_answer_is_said_with_what_was_wrong_with_it(answer: Any, said: str) -> None:
    def handle(batch: pa.RecordBatch) -> Any:
        if batch.num_rows == 4:
            return answer
        raise LookupError("narrowed down")

    assert verdicts(results(handle, vectorised=True)) == ["RETRY"] * 4
    alone = results(lambda batch: answer, 1, vectorised=True)
    assert verdicts(alone) == ["RETRY"]
    assert said.split(" for ")[0] in errors(alone)[0]


def test_a_word_that_is_no_verdict_is_said() -> None:
    for answer in (pa.array(["WHAT"]), ["WHAT"], [Verdict("WHAT")], Verdict("WHAT")):
        alone = results(lambda batch, answer=answer: answer, 1, vectorised=True)
        assert errors(alone) == ["'WHAT' is not a verdict: ACK, RETRY or DEAD"]
    alone = results(lambda message: Verdict(["ACK"]), 1)  # type: ignore[arg-type]
    assert errors(alone) == ["['ACK'] is not a verdict: ACK, RETRY or DEAD"]


def test_a_batch_that_comes_the_first_time_is_handled_in_one_call() -> None:
    sizes: list[int] = []
    assert results(lambda batch: sizes.append(batch.num_rows), 1_000, vectorised=True).verdict is None
    assert sizes == [1_000]


@pytest.mark.parametrize("bad", [b"0", b"1"])
def test_of_two_messages_each_has_its_own_result(bad: bytes) -> None:
    def handle(batch: pa.RecordBatch) -> None:
        if bad in batch.column("body").to_pylist():
            raise ValueError("poison")

    result = results(handle, 2, vectorised=True)
    assert result.rows == len(result.started_at) == len(result.finished_at) == 2
    assert verdicts(result) == ["RETRY" if body == bad else "ACK" for body in (b"0", b"1")]
    assert result.error_text is not None
    assert result.error_text.to_pylist() == ["poison" if body == bad else None for body in (b"0", b"1")]


@pytest.mark.parametrize(
    ("answer", "works"),
    [
        (None, True),
        ([None] * 16, True),
        (["RETRY"] * 16, True),
        (pa.array(["RETRY"] * 16), True),
        (Verdict.ACK, True),
        (Verdict.dead("no"), True),
        (Verdict.RETRY, False),
        (Verdict.retry(3), False),
    ],
    ids=str,
)
def test_one_retry_for_all_is_no_sign_that_a_handler_works(answer: Any, works: bool) -> None:
    """One that works is called until each bad message is known; one that may not is given up on."""

    def handle(batch: pa.RecordBatch) -> Any:
        if b"0" in batch.column("body").to_pylist():
            return answer
        raise ConnectionError

    again = Before([True] * 320, [False] * 320, lambda row: False, lambda row: False)
    result = invoke_here(OpenedHandler(LoadedHandler(handle, True)), batch(320), POLICY, again)
    assert result.isolated is not None
    assert (sum(result.isolated.to_pylist()) == 304) is works
    assert (result.in_company is None) is works


def test_levels_of_a_column_are_levels_of_the_store_and_null_is_the_groups_own() -> None:
    answer = pa.table({"verdict": ["RETRY"] * 4, "delay_level": [0, -3, None, 99]})
    result = results(lambda batch: answer, vectorised=True)
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [1, 1, None, 4]


def test_a_null_among_other_verdicts_acknowledges_its_row() -> None:
    result = results(lambda batch: pa.array(["RETRY", None, None, "DEAD"]), vectorised=True)
    assert verdicts(result) == ["RETRY", "ACK", "ACK", "DEAD"]


def test_a_delay_of_nothing_is_the_shortest_level() -> None:
    result = results(lambda message: Verdict.retry("0ms"), 1)
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [1]


def test_each_row_has_the_time_of_its_own_call() -> None:
    seen: list[int] = []

    def handle(message: Any) -> None:
        before = time.time_ns() // 1_000
        while time.time_ns() // 1_000 < before + 50:
            pass
        seen.append(before)

    result = results(handle, 3)
    started = result.started_at.cast(pa.int64()).to_pylist()
    finished = result.finished_at.cast(pa.int64()).to_pylist()
    for at, begin, end in zip(seen, started, finished, strict=True):
        assert begin <= at < at + 50 <= end
    assert all(end <= begin for end, begin in zip(finished[:-1], started[1:], strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_the_rows_of_a_vectorised_call_have_its_times(fails: bool) -> None:
    def handle(batch: pa.RecordBatch) -> None:
        before = time.time_ns() // 1_000
        while time.time_ns() // 1_000 < before + 50:
            pass
        if fails:
            raise ValueError

    result = results(handle, 1, vectorised=True)
    assert result.started_at.type == result.finished_at.type == pa.timestamp("us", "UTC")
    began, ended = (column.cast(pa.int64())[0].as_py() for column in (result.started_at, result.finished_at))
    assert ended - began >= 50


def test_pieces_of_which_some_are_acknowledged_keep_each_rows_verdict() -> None:
    def handle(batch: pa.RecordBatch) -> Any:
        bodies = batch.column("body").to_pylist()
        if b"3" in bodies:
            raise ValueError("poison")
        return ["DEAD" if body == b"6" else None for body in bodies]

    result = results(handle, 8, vectorised=True)
    assert verdicts(result) == ["ACK"] * 3 + ["RETRY"] + ["ACK"] * 2 + ["DEAD", "ACK"]
    assert result.isolated is not None
    assert result.isolated.to_pylist() == [row == 3 for row in range(8)]


def test_what_fails_only_in_company_is_marked_so() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        raise ConnectionError

    result = results(handle, 10_000, vectorised=True)
    assert result.in_company is not None
    assert result.isolated is not None
    marks = zip(result.in_company.to_pylist(), result.isolated.to_pylist(), strict=True)
    assert all(company != alone for company, alone in marks)
    assert sum(result.in_company.to_pylist()) > 9_000


def test_a_row_that_may_only_be_given_up_alone_has_a_call_of_its_own() -> None:
    sizes: list[int] = []

    def handle(batch: pa.RecordBatch) -> Any:
        sizes.append(batch.num_rows)
        bodies = batch.column("body").to_pylist()
        return [Verdict.retry(1 + int(body)) if body != b"0" else None for body in bodies]

    before = Before([False] * 4, [False] * 4, lambda row: row == 2, lambda row: False)
    result = invoke_here(OpenedHandler(LoadedHandler(handle, True)), batch(4), POLICY, before)
    assert sizes == [4, 1]
    assert result.delay_level is not None
    assert result.delay_level.to_pylist() == [None, 2, 3, 4]


def test_a_trace_too_long_keeps_its_end_and_a_text_its_beginning() -> None:
    def handle(message: Any) -> None:
        raise ValueError("begin" + "x" * 20_000 + "the end")

    result = results(handle, 1)
    assert result.error_trace is not None
    assert result.error_trace[0].as_py().endswith("the end\n")
    assert len(errors(result)[0]) == 2_000
    assert errors(result)[0].startswith("begin")
