"""Outcomes of messages that an operator gave up: no call of the handler, DEAD with the reason, a row each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.frames.evaluation import CANNOT_RETURN, ISOLATED
from jobs.group.batch_size import Handled
from jobs.group.message_frame import MessageTask
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import OutcomeTask
from jobs.group.skips.skipped_rows import Skip, Skips, beside_skipped
from jobs.handler.call_order import CallOrder
from jobs.handler.loader import HandlerTarget
from jobs.handler.results import with_outcomes
from jobs.handler.verdicts import Outcome
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from lakemq.handler import DeliveredMessage, Verdict
from tests.support.outcome_rows import POLICY, SCHEMA, keyed, message, obey, retried

REASON = "skipped by anna@host: no such customer"
CALLS: list[int] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def note(message: DeliveredMessage) -> Verdict | None:
    """Does what the body says, and notes that it was asked."""
    CALLS.append(message.queue_offset)
    return obey(message)


def note_batch(batch: pa.RecordBatch) -> None:
    """Acknowledges, and notes what it was given."""
    CALLS.extend(batch.column("queue_offset").to_pylist())


def skips(*offsets: int, **elsewhere: Any) -> Skips:
    at: dict[str, Any] = {"topic": "orders", "broker_name": "broker-a", "queue_id": 1} | elsewhere
    return Skips(frozenset(Skip(queue_offset=offset, reason=REASON, **at) for offset in offsets))


def rows_of(
    messages: list[dict[str, Any]],
    given_up: Skips,
    *,
    mode: Mode = "concurrent",
    handler: str = "note",
    policy: RetryPolicy = POLICY,
    rules: LaneRules | None = None,
    handled: list[Handled] | None = None,
) -> list[dict[str, Any]]:
    lanes = rules or LaneRules() if mode == "orderly" else None
    target = HandlerTarget(f"{__name__}:{handler}", "yes" if handler == "note_batch" else "auto")
    task = OutcomeTask("g", target, policy, mode, "query-1", 5, lanes=lanes, skips=given_up)
    if handled is not None:
        task = OutcomeTask(**(vars(task) | {"handled": handled.append}))
    made = list(task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)])))
    return [row for rows in made for row in rows.to_pylist()]


def verdicts(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["queue_offset"], row["verdict"]) for row in rows]


@pytest.mark.parametrize("handler", ["note", "note_batch"])
def test_a_message_that_is_given_up_is_dead_without_a_call_and_keeps_what_a_dead_letter_needs(
    handler: str,
) -> None:
    handled: list[Handled] = []
    rows = rows_of([message(at) for at in range(4)], skips(1, 2), handler=handler, handled=handled)
    assert verdicts(rows) == [(0, "ACK"), (1, "DEAD"), (2, "DEAD"), (3, "ACK")]
    assert sorted(CALLS) == [0, 3]
    given_up = rows[1]
    assert (given_up["reason"], given_up["error_type"], given_up["error_text"]) == (REASON, None, None)
    assert (given_up["body"], given_up["flag"], given_up["attempt"]) == (b"{}", 7, 1)
    assert given_up["started_at"] == given_up["finished_at"] is not None, "a dead letter has its times"
    assert given_up["next_attempt_at"] is given_up["delay_level"] is None
    assert [(each.rows, each.given_up, each.skipped) for each in handled] == [(4, 2, 2)]


def test_a_retry_is_known_by_its_original_position_and_has_the_number_of_its_attempt() -> None:
    rows = rows_of([retried(7, 3, 2, {"raise": "x"}), retried(3, 4, 1), message(7)], skips(3))
    assert [(row["queue_offset"], row["attempt"], row["verdict"]) for row in rows] == [
        (3, 3, "DEAD"),
        (4, 2, "ACK"),
        (7, 1, "ACK"),
    ]
    assert rows[0]["reason"] == REASON, "not that its attempts are used up"


@pytest.mark.parametrize(
    "elsewhere", [{"topic": "other"}, {"broker_name": "broker-b"}, {"queue_id": 0}], ids=str
)
def test_a_message_at_the_same_offset_elsewhere_is_handled(elsewhere: dict[str, Any]) -> None:
    assert verdicts(rows_of([message(1)], skips(1, **elsewhere))) == [(1, "ACK")]
    assert CALLS == [1]


@pytest.mark.parametrize("handler", ["note", "note_batch"])
def test_the_handler_is_not_called_for_a_batch_of_which_all_is_given_up(handler: str) -> None:
    assert verdicts(rows_of([message(0), message(1)], skips(0, 1), handler=handler)) == [
        (0, "DEAD"),
        (1, "DEAD"),
    ]
    assert CALLS == []


def test_a_lane_goes_on_behind_a_message_that_is_given_up() -> None:
    messages = [message(0, {"raise": "x"}), message(1), keyed(message(2), "k"), message(3)]
    handled: list[Handled] = []
    rows = rows_of(messages, skips(0), mode="orderly", handled=handled)
    assert verdicts(rows) == [(0, "DEAD"), (1, "ACK"), (2, "ACK"), (3, "ACK")]
    assert rows[0]["reason"] == REASON
    assert sorted(CALLS) == [1, 2, 3]
    assert CALLS.index(1) < CALLS.index(3)
    assert handled[0].skipped == 1


def test_what_is_given_up_behind_a_failure_of_its_lane_is_parked_until_its_turn() -> None:
    messages = [message(0, {"raise": "x"}), message(1), message(2), keyed(message(3), "k")]
    handled: list[Handled] = []
    rows = rows_of(messages, skips(1, 3), mode="orderly", handled=handled)
    assert verdicts(rows) == [(0, "RETRY"), (1, "PARKED"), (2, "PARKED"), (3, "DEAD")]
    assert rows[1]["started_at"] is rows[1]["reason"] is None
    assert handled[0].skipped == 1
    used_up = RetryPolicy.of("10s", [1_000, 10_000], 0)
    rows = rows_of(messages, skips(1), mode="orderly", policy=used_up)
    assert verdicts(rows)[:3] == [(0, "DEAD"), (1, "DEAD"), (2, "ACK")]


def test_what_is_given_up_on_a_lane_that_waits_stays_parked_and_has_no_second_row() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    rules = LaneRules({lane: (Attempt(0, 2),)}, frozenset([(lane, Attempt(1, 1))]))
    assert rows_of([message(1)], skips(1), mode="orderly", rules=rules) == []
    assert CALLS == []


def test_a_retry_that_its_lane_waits_for_and_that_is_given_up_lets_the_parked_go_on() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    rules = LaneRules({lane: (Attempt(0, 9),)}, frozenset([(lane, Attempt(1, 1))]))
    rows = rows_of([retried(5, 0, 8, {"raise": "x"}), message(1)], skips(0), mode="orderly", rules=rules)
    assert [(row["queue_offset"], row["attempt"], row["verdict"]) for row in rows] == [
        (0, 9, "DEAD"),
        (1, 1, "ACK"),
    ]


def test_an_attempt_in_company_stops_its_lane_although_it_would_have_been_the_last() -> None:
    def said() -> list[str]:
        verdict = beside_skipped(called, [0], {1: REASON}, CallOrder(((0, 1),), frozenset([0]))).verdict
        assert verdict is not None
        return list(verdict.to_pylist())

    called = with_outcomes(1, [1], [1], {0: Outcome("RETRY")})
    assert said() == ["RETRY", "DEAD"]
    called.in_company = pa.array([True])
    assert said() == ["RETRY", "PARKED"]


def test_a_function_of_dataframes_does_not_see_what_is_given_up() -> None:
    batch = pa.RecordBatch.from_pylist([message(0), message(1), retried(4, 2, 1)], SCHEMA)
    (seen,) = MessageTask("g", skips(1, 2))(iter([batch]))
    assert seen.column("queue_offset").to_pylist() == [0]
    assert seen.schema.names[-2:] == [ISOLATED, CANNOT_RETURN]
