"""Rows of `deliveries` made from messages of lanes, and of a part of a batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import OutcomeTask
from jobs.group.task_part import TaskPart
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from tests.support.outcome_rows import OBEY, POLICY, SCHEMA, attempt_at, keyed, message, retried


def in_lanes(
    *batches: list[dict[str, Any]], rules: LaneRules | None = None, policy: RetryPolicy = POLICY
) -> list[dict[str, Any]]:
    task = OutcomeTask("g", OBEY, policy, "orderly", "query-1", 5, lanes=rules or LaneRules())
    made = list(task(pa.RecordBatch.from_pylist(b, SCHEMA) for b in batches))
    return [row for batch in made for row in batch.to_pylist()]


def test_what_follows_a_failure_on_its_lane_is_parked_with_its_body() -> None:
    rows = in_lanes(
        [
            keyed(message(0, {"raise": "x"}), "a"),
            keyed(message(1), "b"),
            keyed(message(2), "a"),
            message(3),
        ]
    )
    assert [row["verdict"] for row in rows] == ["RETRY", "ACK", "PARKED", "ACK"]
    assert ("LMQ_ORDERLY", "1") in rows[0]["properties"], "retention keeps what suspends a lane"
    parked = rows[2]
    assert (parked["attempt"], parked["body"], parked["flag"]) == (1, b"{}", 7)
    assert parked["properties"] == [("colour", "red"), ("LMQ_SHARDING_KEY", "a")]
    assert (
        parked["started_at"] is parked["next_attempt_at"] is parked["error_text"] is parked["reason"] is None
    )
    assert parked["finished_at"] >= rows[0]["finished_at"]


def test_a_retry_that_is_parked_keeps_what_is_known_of_its_attempts() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    marks = [*retried(1, 4, 1)["properties"], ("LMQ_UNCOUNTED", "1"), ("LMQ_ALONE", "1")]
    rules = LaneRules({lane: (Attempt(2, 2),)})
    (row,) = in_lanes([retried(1, 4, 1, properties=marks)], rules=rules)
    assert (row["verdict"], row["attempt"], row["source_topic"]) == ("PARKED", 2, "%RETRY%g")
    assert {name: value for name, value in row["properties"] if name.startswith("LMQ_")} == {
        "LMQ_ORIGIN": "broker-a/1/4",
        "LMQ_UNCOUNTED": "1",
        "LMQ_ALONE": "1",
    }


def test_what_is_parked_already_and_goes_on_waiting_has_no_second_row() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    rules = LaneRules(parked=frozenset((lane, Attempt(offset, 1)) for offset in (0, 1)))
    rows = in_lanes([message(0, {"raise": "x"}), message(1)], [message(2)], rules=rules)
    assert [(row["queue_offset"], row["verdict"]) for row in rows] == [(0, "RETRY"), (2, "PARKED")]


def test_a_lane_goes_on_behind_a_message_that_is_given_up() -> None:
    policy = RetryPolicy.of("10s", [1_000, 10_000], 0)
    rows = in_lanes([message(0, {"raise": "x"}), message(1, {"dead": "y"}), message(2)], policy=policy)
    assert [row["verdict"] for row in rows] == ["DEAD", "DEAD", "ACK"]


def part_outcomes(part: TaskPart, messages: list[dict[str, Any]], mode: Mode = "concurrent") -> list[Any]:
    task = OutcomeTask(
        *("g", OBEY, POLICY, mode, "query-1", 5),
        lanes=LaneRules() if mode == "orderly" else None,
        part=part,
    )
    made = task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)]))
    rows = [row for batch in made for row in batch.to_pylist()]
    return [(row["queue_offset"], row["attempt"], row["verdict"], row["reason"]) for row in rows]


def test_only_the_messages_of_a_part_are_handled() -> None:
    messages = [message(0), message(1, {"dead": "bad"}), retried(5, 0, 1), message(2, {"dead": "bad"})]
    part = TaskPart(frozenset({attempt_at(0, 2), attempt_at(1)}))
    assert part_outcomes(part, messages) == [(1, 1, "DEAD", "bad"), (0, 2, "ACK", None)]


def test_a_message_whose_worker_died_before_is_not_called() -> None:
    part = TaskPart(frozenset({attempt_at(1)}), died=True)
    assert part_outcomes(part, [message(0), message(1, {"dead": "bad"})]) == [(1, 1, "RETRY", "worker died")]
    used_up = TaskPart(frozenset({attempt_at(1, 3)}), died=True)
    assert part_outcomes(used_up, [retried(0, 1, 2)]) == [(1, 3, "DEAD", "worker died")]


@pytest.mark.parametrize(
    ("coming_again", "died", "verdict"),
    [
        ((), False, "ACK"),
        ((1,), False, "ACK"),
        ((0,), False, "PARKED"),
        ((0,), True, "PARKED"),
        ((), True, "RETRY"),
    ],
)
def test_a_part_of_an_orderly_group_finds_its_lanes_as_the_messages_before_it_left_them(
    coming_again: tuple[int, ...], died: bool, verdict: str
) -> None:
    messages = [keyed(message(offset), key) for offset, key in enumerate("abab")]
    before = frozenset({attempt_at(0), attempt_at(1)})
    again = frozenset(attempt_at(offset) for offset in coming_again)
    part = TaskPart(frozenset({attempt_at(2)}), before, again, died)
    (row,) = part_outcomes(part, messages, "orderly")
    assert (row[0], row[2]) == (2, verdict)
