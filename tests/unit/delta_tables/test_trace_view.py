"""What the view of a message's trace says through deltalake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.messages import MESSAGES
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.replays import REPLAYS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table
from tests.support.ledger_rows import (
    append,
    dead_letter,
    delivery,
    of_send,
    path_ledger,
    query,
    replayed,
    skipped,
    stored,
)

SENT = [(0, 1), (0, 2), (3, 1)]
"""Offset and number of messages that were sent."""
IN_ORDER = "ORDER BY event_at, attempt, event"


def test_a_trace_has_the_events_of_a_message_over_retries_death_and_replay(ledger: PathLedger) -> None:
    append(ledger, MESSAGES, [stored(7), stored(8), stored(2, reconsume_times=1, message_id="ID7")])
    append(
        ledger, DELIVERIES, [delivery(7, 3, error_text="again"), delivery(7, verdict="RETRY"), delivery(8)]
    )
    append(ledger, DELIVERIES, [delivery(7, 2, "DEAD", worker="host:9"), delivery(7, consumer_group="other")])
    append(ledger, DEAD_LETTERS, [dead_letter(7, 2), dead_letter(8, 2)])
    append(ledger, REPLAYS, [replayed(7, 2), replayed(8, 2, "DISCARD", reason="a test")])
    append(ledger, SKIPPED_MESSAGES, [skipped(7, 1)])
    trace = (
        "SELECT event, consumer_group, topic, queue_offset, attempt, verdict, reason, operator "
        "FROM message_trace"
    )
    found = query(ledger, f"{trace} WHERE message_id = 'ID7' {IN_ORDER}, consumer_group")
    assert [tuple(row.values()) for row in found] == [
        ("STORED", None, "orders", 7, 0, None, None, None),
        ("ATTEMPT", "g", "orders", 7, 1, "RETRY", None, None),
        ("ATTEMPT", "other", "orders", 7, 1, "ACK", None, None),
        ("SKIP", "g", "orders", 7, 1, None, "no use", "anna@host"),
        ("STORED", None, "%RETRY%g", 2, 1, None, None, None),
        ("ATTEMPT", "g", "orders", 7, 2, "DEAD", None, None),
        ("DEAD_LETTER", "g", "orders", 7, 2, None, "no", None),
        ("REPLAY", "g", "orders", 7, 2, None, None, "anna@host"),
        ("ATTEMPT", "g", "orders", 7, 3, "ACK", None, None),
    ]
    put_aside = query(ledger, f"{trace} WHERE consumer_group = 'g' AND event = 'DISCARD'")
    assert [tuple(row.values()) for row in put_aside] == [
        ("DISCARD", "g", "orders", 8, 2, None, "a test", "anna@host")
    ]


def test_a_trace_says_which_replay_had_another_body(ledger: PathLedger) -> None:
    append(ledger, REPLAYS, [replayed(7, 1), replayed(8, 1, old_body_sha256="0f", new_body_sha256="1e")])
    found = query(ledger, f"SELECT message_id, event, reason FROM message_trace {IN_ORDER}")
    assert [tuple(row.values()) for row in found] == [
        ("ID7", "REPLAY", None),
        ("ID8", "REPLAY", "another body, sha256 1e"),
    ]


@pytest.mark.parametrize(
    ("condition", "events"),
    [
        ("consumer_group = 'g'", ["ATTEMPT", "DEAD_LETTER", "REPLAY"]),
        ("consumer_group IS NULL", ["STORED"]),
        ("verdict IN ('DEAD', 'ACK')", ["ATTEMPT"]),
        ("verdict <> 'RETRY'", ["ATTEMPT"]),
        ("operator = 'anna@host'", ["REPLAY"]),
        ("started_at > TIMESTAMP '2026-11-21 00:00:00Z'", ["ATTEMPT"]),
        ("reason = 'no'", ["DEAD_LETTER"]),
        ("worker LIKE 'host%'", ["ATTEMPT"]),
    ],
)
def test_a_condition_holds_for_no_event_that_has_no_such_value(
    ledger: PathLedger, condition: str, events: list[str]
) -> None:
    append(ledger, MESSAGES, [stored(7)])
    append(ledger, DELIVERIES, [delivery(7, verdict="DEAD", worker="host:9")])
    append(ledger, DEAD_LETTERS, [dead_letter(7, 1)])
    append(ledger, REPLAYS, [replayed(7, 1)])
    found = query(ledger, f"SELECT event FROM message_trace WHERE {condition} {IN_ORDER}")
    assert [row["event"] for row in found] == events


def test_a_trace_says_what_became_of_the_messages_that_a_verdict_sends(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(7, sends=3)])
    append(ledger, SENT_MESSAGES, [of_send(SENT_MESSAGES, 7)])
    refused = {"code": "NO_PERMISSION", "error": "not writable"}
    append(ledger, REFUSED_SENDS, [of_send(REFUSED_SENDS, 7, 2, **refused)])
    given_up = {"operator": "anna@host", "reason": "a test"}
    append(ledger, DISCARDED_SENDS, [of_send(DISCARDED_SENDS, 7, 2, **given_up)])
    columns = "event, attempt, sent_topic, sent_message_id, error_type, error_text, operator, reason"
    found = query(ledger, f"SELECT {columns} FROM message_trace WHERE message_id = 'ID7' {IN_ORDER}")
    assert [tuple(row.values()) for row in found] == [
        ("ATTEMPT", 1, None, None, None, None, None, None),
        ("SENT", 1, "invoices", "S71", None, None, None, None),
        ("SEND_REFUSED", 1, "invoices", "S72", "NO_PERMISSION", "not writable", None, None),
        ("SEND_DISCARDED", 1, "invoices", "S72", None, None, "anna@host", "a test"),
    ]


def test_a_trace_has_the_times_and_the_worker_of_an_attempt(ledger: PathLedger) -> None:
    failed = delivery(7, verdict="RETRY", worker="host:9")
    append(ledger, DELIVERIES, [failed])
    (row,) = query(ledger, "SELECT * FROM message_trace")
    times = ("started_at", "next_attempt_at", "error_type", "error_text", "worker")
    assert {name: row[name] for name in times} == {name: failed[name] for name in times}
    assert row["event_at"] == failed["finished_at"]
    assert row["operator"] is None


def test_a_trace_needs_neither_archive_nor_replays_and_takes_replays_of_older_releases(
    tmp_path: Path,
) -> None:
    ledger = path_ledger(tmp_path / "ledger")
    append(ledger, DELIVERIES, [delivery(7, verdict="DEAD")])
    assert [row["event"] for row in query(ledger, f"SELECT event FROM message_trace {IN_ORDER}")] == [
        "ATTEMPT"
    ]
    older = path_ledger(tmp_path / "older")
    append(older, REPLAYS, [replayed(7, 1, action=None)])
    assert [row["event"] for row in query(older, "SELECT event FROM message_trace")] == ["REPLAY"]


@pytest.mark.parametrize(
    "condition",
    [
        "message_id = 'ID30'",
        "topic = 'orders' AND queue_id = 0 AND queue_offset = 30",
        "consumer_group = 'other' AND event <> 'STORED'",
        "event_at >= TIMESTAMP '2026-11-21 08:01:20Z'",
    ],
)
def test_a_trace_opens_no_file_that_the_statistics_rule_out(ledger: PathLedger, condition: str) -> None:
    made: dict[Table, Callable[..., dict[str, Any]]] = {
        MESSAGES: lambda offset, group: stored(offset),
        DELIVERIES: lambda offset, group: delivery(offset, consumer_group=group),
        DEAD_LETTERS: lambda offset, group: dead_letter(offset, 1, consumer_group=group),
        REPLAYS: lambda offset, group: replayed(offset, 1, consumer_group=group),
        SENT_MESSAGES: lambda offset, group: of_send(SENT_MESSAGES, offset, consumer_group=group),
        REFUSED_SENDS: lambda offset, group: of_send(REFUSED_SENDS, offset, consumer_group=group),
        DISCARDED_SENDS: lambda offset, group: of_send(DISCARDED_SENDS, offset, consumer_group=group),
        SKIPPED_MESSAGES: lambda offset, group: skipped(offset, 1, consumer_group=group),
    }
    for table, make in made.items():
        append(ledger, table, [make(7, "g")])
        for file in ledger.path(table).glob("*.parquet"):
            file.unlink()
        append(ledger, table, [make(30, "other")])
    found = query(ledger, f"SELECT event, queue_offset FROM message_trace WHERE {condition} {IN_ORDER}")
    of_group = ["ATTEMPT", "DEAD_LETTER", "REPLAY", "SENT", "SKIP", "SEND_REFUSED", "SEND_DISCARDED"]
    events = of_group if "group" in condition else ["STORED", *of_group]
    assert [tuple(row.values()) for row in found] == [(event, 30) for event in events]
