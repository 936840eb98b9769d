"""Rows of `deliveries` made from messages: which attempt comes again, when, and which is the last."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.group.outcome_rows import IN_COMPANY
from jobs.group.outcomes import OutcomeTask
from jobs.redelivery.counted_attempts import attempt_counts
from jobs.redelivery.original_position import LAST_ATTEMPT, original_positions
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Verdict
from tests.support.outcome_rows import OBEY, SCHEMA, decided, message, outcomes, retried


def test_the_next_attempt_is_due_after_the_delay_of_this_attempt() -> None:
    (first,) = outcomes([message(0, {"raise": "x"})])
    (second,) = outcomes([retried(0, 0, 1, {"raise": "x"})])
    assert (first["delay_level"], second["delay_level"]) == (2, 3)
    assert first["next_attempt_at"] - first["finished_at"] == timedelta(seconds=10)
    assert second["next_attempt_at"] - second["finished_at"] == timedelta(seconds=30)


def test_attempts_used_up_make_a_message_dead_with_its_last_error() -> None:
    (row,) = outcomes([retried(41, 3, 2, {"raise": "still broken"})])
    assert (row["attempt"], row["verdict"], row["delay_level"]) == (3, "DEAD", None)
    assert row["error_text"] == "still broken"
    assert row["reason"] == "attempts used up (max reconsume times 2)"


def test_a_message_without_space_for_a_retrys_properties_is_given_up_with_that_reason() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    rows = outcomes([message(0, {"raise": "x"}, **full), message(1, {"raise": "x"}), message(2, **full)])
    assert [row["verdict"] for row in rows] == ["DEAD", "RETRY", "ACK"]
    assert rows[0]["reason"].startswith("its properties leave no space")
    assert rows[0]["error_text"] == "x"
    assert rows[0]["next_attempt_at"] is rows[0]["delay_level"] is None
    assert rows[0]["properties"] == full["properties"]


def test_a_message_that_had_space_at_its_first_attempt_has_it_at_the_next() -> None:
    added = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/0"), ("ORIGIN_MESSAGE_ID", "ID0")]
    verdicts = []
    for size in range(31_900, 32_101, 5):
        long = [("long", "x" * size)]
        again = retried(9, 0, 1, {"raise": "x"}) | {"properties": [*added, *long]}
        first, second = outcomes([message(0, {"raise": "x"}, properties=long), again])
        assert first["verdict"] == second["verdict"]
        verdicts.append(first["verdict"])
    assert (verdicts[0], verdicts[-1]) == ("RETRY", "DEAD")


@pytest.mark.parametrize("times", [2**31 - 1, 2**31 - 2])
@pytest.mark.parametrize("order", [{}, {"raise": "x"}, {"dead": "x"}])
def test_an_attempt_beyond_all_numbers_is_the_last_one(times: int, order: dict[str, Any]) -> None:
    row, other = outcomes([retried(40, 3, times, order), retried(41, 4, 1, {"raise": "x"})])
    assert (row["queue_offset"], row["attempt"]) == (3, LAST_ATTEMPT)
    assert row["verdict"] == ("DEAD" if order else "ACK")
    assert (other["verdict"], other["attempt"], other["delay_level"]) == ("RETRY", 2, 3)


def test_the_last_attempt_is_given_up_however_few_of_them_are_said_to_count() -> None:
    said = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/3"), ("LMQ_UNCOUNTED", "999999999")]
    policy = RetryPolicy.of("10s", [1_000, 10_000], 2**31 - 1)
    task = OutcomeTask("g", OBEY, policy, "concurrent", "query-1", 5)
    messages = [retried(40, 3, 2**31 - 1, {"raise": "x"}) | {"properties": said}]
    (made,) = task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)]))
    assert made.column("verdict").to_pylist() == ["DEAD"]


@pytest.mark.parametrize(("times", "said", "held"), [(1, "400", 1), (5, "3", 3), (5, "999999999", 5)])
def test_no_more_attempts_are_left_out_of_the_count_than_there_were(times: int, said: str, held: int) -> None:
    properties = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/3"), ("LMQ_UNCOUNTED", said)]
    batch = pa.RecordBatch.from_pylist([retried(40, 3, times) | {"properties": properties}], SCHEMA)
    counts = attempt_counts(batch, original_positions(batch, "g"), "g")
    assert counts.uncounted.to_pylist() == [held]
    assert counts.counted.to_pylist() == [times + 1 - held]
    (row,) = outcomes([retried(40, 3, times, {"raise": "x"}) | {"properties": properties}])
    kept = dict(row["properties"]).get("LMQ_UNCOUNTED")
    assert (row["verdict"], kept) == (("DEAD", None) if times + 1 - held > 2 else ("RETRY", str(held)))


def test_a_handlers_own_reason_stays_when_attempts_are_used_up() -> None:
    (row,) = decided(lambda batch: [Verdict.retry(reason="still closed")], [retried(40, 3, 2)])
    assert (row["verdict"], row["reason"]) == ("DEAD", "still closed")


def test_the_last_attempt_but_one_is_a_retry() -> None:
    (row,) = outcomes([retried(40, 3, 1, {"raise": "x"})])
    assert (row["attempt"], row["verdict"]) == (2, "RETRY")


def test_a_message_given_up_by_its_handler_keeps_that_reason_however_large_it_is() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    (row,) = outcomes([message(0, {"dead": "bad"}, **full)])
    assert (row["verdict"], row["reason"]) == ("DEAD", "bad")


def test_a_message_that_cannot_come_back_keeps_its_handlers_reason_too() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    (row,) = decided(lambda batch: [Verdict.retry(reason="closed")], [message(0, **full)])
    assert row["verdict"] == "DEAD"
    assert row["reason"].startswith("its properties leave no space")
    assert row["reason"].endswith("; closed")


def test_the_level_a_verdict_names_goes_before_the_groups_own() -> None:
    answers = [Verdict.retry(4), Verdict.retry(), Verdict.dead("no"), None]
    rows = decided(lambda batch: answers, [message(at) for at in range(4)])
    assert [row["delay_level"] for row in rows] == [4, 2, None, None]
    waits = [row["next_attempt_at"] and row["next_attempt_at"] - row["finished_at"] for row in rows]
    assert waits == [timedelta(seconds=60), timedelta(seconds=10), None, None]


def test_a_first_delivery_and_its_retry_are_two_attempts() -> None:
    # Another attempt of the same message, and the first delivery before it, are no repeats.
    other = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-b/1/4")]
    rows = outcomes([message(4), retried(1, 4, 1), message(4), retried(2, 4, 2)], [retried(3, 4, 1)])
    assert [(row["source_topic"], row["attempt"]) for row in rows] == [
        ("orders", 1),
        ("%RETRY%g", 2),
        ("orders", 1),
        ("%RETRY%g", 3),
    ]
    brokers = outcomes([retried(1, 4, 1), retried(2, 4, 1, properties=other)])
    assert [row["broker_name"] for row in brokers] == ["broker-a", "broker-b"]


def test_what_failed_only_in_company_comes_again_with_that_attempt_left_out() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        raise ConnectionError

    rows = decided(handle, [message(at) for at in range(2_000)])
    together = [row for row in rows if row["reason"] is not None]
    assert len(together) > 1_000
    assert {row["reason"] for row in together} == {IN_COMPANY}
    assert {dict(row["properties"]).get("LMQ_UNCOUNTED") for row in together} == {"1"}
    alone = [row for row in rows if row["reason"] is None]
    assert alone
    assert {dict(row["properties"]).get("LMQ_ALONE") for row in alone} == {"1"}


def test_an_attempt_in_company_is_not_the_last_one_and_a_last_one_is_made_alone() -> None:
    sizes: list[int] = []

    def handle(batch: pa.RecordBatch) -> Any:
        sizes.append(batch.num_rows)
        return [Verdict.RETRY] * batch.num_rows

    rows = decided(handle, [retried(40, 3, 2), retried(41, 4, 1), message(9)])
    assert [row["verdict"] for row in rows] == ["DEAD", "RETRY", "RETRY"]
    assert sorted(sizes) == [1, 1, 2]
    sizes.clear()
    assert {row["verdict"] for row in decided(handle, [message(0), message(1)], mode="broadcast")} == {
        "DROPPED"
    }
    assert sizes == [2, 1, 1]


def test_a_dead_message_carries_no_marks_of_its_attempts() -> None:
    said = [
        ("RETRY_TOPIC", "orders"),
        ("LMQ_ORIGIN", "broker-a/1/3"),
        ("LMQ_UNCOUNTED", "1"),
        ("LMQ_ALONE", "1"),
    ]

    def handle(batch: pa.RecordBatch) -> None:
        raise ValueError

    dead, again = decided(
        handle, [retried(40, 3, 3) | {"properties": said}, retried(41, 3, 1) | {"properties": said}]
    )
    assert (dead["verdict"], again["verdict"]) == ("DEAD", "RETRY")
    assert {"LMQ_UNCOUNTED", "LMQ_ALONE"}.isdisjoint(dict(dead["properties"]))
    assert dict(again["properties"])["LMQ_ALONE"] == "1"


def half() -> float:
    """Stands for a generator."""
    return 0.5


def test_a_backoff_draws_for_what_comes_again_and_a_verdicts_own_delay_wins() -> None:
    policy = RetryPolicy.of(None, [1_000, 10_000, 30_000, 60_000], 5, "20s..1m", half)

    def handler(batch: pa.RecordBatch) -> list[Verdict]:
        said = {1: Verdict.ACK, 3: Verdict.retry("1m"), 5: Verdict.dead("no")}
        return [said.get(offset, Verdict.RETRY) for offset in batch.column("queue_offset").to_pylist()]

    messages = [message(1), message(2), message(3), retried(40, 4, 2), message(5)]
    rows = decided(handler, messages, policy=policy)
    assert [row["delay_level"] for row in rows] == [None, 2, 4, 3, None]
