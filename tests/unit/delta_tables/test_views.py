"""What the views say through deltalake; test_ledger_spark.py queries Spark for the same."""

from __future__ import annotations

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.views import VIEWS
from tests.support.ledger_rows import append, delivery, query, report

SENT = [(0, 1), (0, 2), (3, 1)]
"""Offset and number of messages that were sent."""


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_empty_on_an_empty_ledger(ledger: PathLedger, view: str) -> None:
    assert query(ledger, f"SELECT * FROM {view}") == []


def test_history_has_the_attempts_of_a_message_in_order(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(7, attempt=3), delivery(7, verdict="RETRY"), delivery(8)])
    append(ledger, DELIVERIES, [delivery(7, attempt=2, verdict="RETRY")])
    (row,) = query(ledger, "SELECT * FROM delivery_history WHERE message_id = 'ID7'")
    assert [(a["attempt"], a["verdict"]) for a in row["attempts"]] == [(1, "RETRY"), (2, "RETRY"), (3, "ACK")]
    assert (row["state"], row["attempt_count"], row["keys"], row["tags"]) == ("ACK", 3, "K7 all", "A")
    assert row["attempts"][0]["error_text"] == "broken"


@pytest.mark.parametrize(("verdict", "state"), [("RETRY", "RETRY"), ("DEAD", "DEAD"), ("DROPPED", "DROPPED")])
def test_history_shows_the_state_of_a_message(ledger: PathLedger, verdict: str, state: str) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY"), delivery(0, attempt=2, verdict=verdict)])
    assert [row["state"] for row in query(ledger, "SELECT state FROM delivery_history")] == [state]


def test_a_replayed_message_is_what_its_last_attempt_says(ledger: PathLedger) -> None:
    for offset, after in enumerate(("RETRY", "ACK", "DEAD")):
        rows = [delivery(offset, verdict="DEAD"), delivery(offset, attempt=2, verdict=after)]
        append(ledger, DELIVERIES, rows)
    states = query(ledger, "SELECT queue_offset, state FROM delivery_history ORDER BY queue_offset")
    assert [row["state"] for row in states] == ["RETRY", "ACK", "DEAD"]


@pytest.mark.parametrize(
    "condition",
    [
        "message_id = 'ID30'",
        "topic = 'orders' AND queue_id = 0 AND queue_offset = 30",
        "consumer_group = 'other'",
    ],
)
def test_a_history_opens_no_file_that_the_statistics_rule_out(ledger: PathLedger, condition: str) -> None:
    append(ledger, DELIVERIES, [delivery(7)])
    for file in ledger.path(DELIVERIES).glob("*.parquet"):
        file.unlink()
    append(ledger, DELIVERIES, [delivery(30, consumer_group="other", verdict="RETRY")])
    append(ledger, DELIVERIES, [delivery(30, 2, consumer_group="other")])
    found = query(
        ledger, f"SELECT queue_offset, state, attempt_count FROM delivery_history WHERE {condition}"
    )
    assert [tuple(row.values()) for row in found] == [(30, "ACK", 2)]


def test_a_retry_is_pending_until_its_next_attempt_has_a_row(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY"), delivery(1, verdict="RETRY"), delivery(2)])
    append(ledger, DELIVERIES, [delivery(1, attempt=2, verdict="RETRY")])
    rows = query(ledger, "SELECT queue_offset, attempt FROM pending_retries ORDER BY queue_offset")
    assert [(row["queue_offset"], row["attempt"]) for row in rows] == [(0, 1), (1, 2)]


def test_a_dead_message_is_pending_until_it_is_landed(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="DEAD"), delivery(1, verdict="DEAD")])
    landed = delivery(0) | {"attempts": 1, "reason": "no", "last_attempt_at": None, "first_attempt_at": None}
    append(ledger, DEAD_LETTERS, [{name: landed.get(name) for name in DEAD_LETTERS.column_names}])
    rows = query(ledger, "SELECT queue_offset FROM pending_dead_letters")
    assert [row["queue_offset"] for row in rows] == [1]
    (summary,) = query(ledger, "SELECT * FROM dead_letter_summary")
    assert (summary["messages"], summary["reason"]) == (1, "no")


def test_what_a_verdict_sends_is_pending_until_it_is_recorded_as_sent(ledger: PathLedger) -> None:
    append(
        ledger, DELIVERIES, [delivery(0, sends=2), delivery(1), delivery(2, sends=1), delivery(3, sends=1)]
    )
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    sent = [{name: delivery(offset)[name] for name in key} | {"number": n} for offset, n in SENT]
    append(ledger, SENT_MESSAGES, sent)
    rows = query(ledger, "SELECT queue_offset, sends, waiting FROM pending_sends")
    assert [tuple(row.values()) for row in rows] == [(2, 1, 1)]


def test_progress_is_the_newest_report_with_its_rate(ledger: PathLedger) -> None:
    report(ledger, 0, 100, max_offset=400)
    report(ledger, 100, 300, batch_id=1, max_offset=400)
    (row,) = query(ledger, "SELECT * FROM group_progress")
    assert (row["reached_offset"], row["max_offset"], row["lag"]) == (300, 400, 100)
    assert row["rate_per_s"] == pytest.approx(20.0)
    assert row["age"] is not None


def test_one_report_alone_has_no_rate(ledger: PathLedger) -> None:
    report(ledger, 0, 3, max_offset=3)
    (row,) = query(ledger, "SELECT reached_offset, rate_per_s FROM group_progress")
    assert tuple(row.values()) == (3, None)
