"""What the views say through deltalake; test_ledger_spark.py queries Spark for the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tables.data_losses import DATA_LOSSES, LostRange
from delta_tables.data_losses import rows as lost_rows
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.replays import REPLAYS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table
from delta_tables.views import TABLES, VIEWS
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import (
    START,
    append,
    dead_letter,
    delivery,
    of_send,
    path_ledger,
    replayed,
    report,
    skipped,
    stored,
)


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    location = path_ledger(tmp_path / "ledger")
    location.create(*TABLES)
    return location


def query(ledger: PathLedger, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LedgerReader(str(ledger)).sql(text).to_pylist()
    return rows


def gaps(ledger: PathLedger) -> list[tuple[int, int, int]]:
    rows = query(ledger, "SELECT from_offset, to_offset, missing FROM delivery_gaps ORDER BY from_offset")
    return [(row["from_offset"], row["to_offset"], row["missing"]) for row in rows]


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_empty_on_an_empty_ledger(ledger: PathLedger, view: str) -> None:
    assert query(ledger, f"SELECT * FROM {view}") == []


def test_a_whole_delivery_has_neither_gaps_nor_duplicates(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(1, verdict="RETRY"), delivery(2)])
    append(ledger, DELIVERIES, [delivery(1, attempt=2), delivery(3)])
    report(ledger, 0, 3)
    report(ledger, 3, 4, batch_id=1)
    assert gaps(ledger) == []
    assert query(ledger, "SELECT * FROM duplicate_deliveries") == []


def test_a_hole_between_two_rows_is_a_gap(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(4), delivery(5)])
    assert gaps(ledger) == [(1, 3, 3)]


def test_what_was_reported_done_and_has_no_row_is_a_gap(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(2), delivery(3)])
    report(ledger, 0, 9)
    assert gaps(ledger) == [(0, 1, 2), (4, 8, 5)]


def test_a_reported_queue_without_any_row_is_one_gap(ledger: PathLedger) -> None:
    report(ledger, 5, 9, queue_id=3)
    assert gaps(ledger) == [(5, 8, 4)]


def test_a_gap_says_how_much_of_it_is_recorded_as_lost(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(9), delivery(12)])
    lost = [
        LostRange("orders", "broker-a", 0, 1, 4, "expired"),
        LostRange("orders", "broker-a", 0, 1, 4, "expired"),  # a task that ran twice
        LostRange("orders", "broker-a", 0, 3, 6, "expired"),
        LostRange("orders", "broker-a", 0, 10, 12, "damaged"),
        LostRange("orders", "broker-a", 1, 6, 9, "expired"),
    ]
    rows = lost_rows(lost, consumer_group="g", query_id="q", batch_id=0, recorded_at=START)
    append(ledger, DATA_LOSSES, rows.to_pylist())
    found = query(ledger, "SELECT from_offset, missing, recorded, reason FROM delivery_gaps ORDER BY 1")
    assert [tuple(row.values()) for row in found] == [(1, 8, 5, "expired"), (10, 2, 2, "damaged")]


def test_a_gap_without_any_recorded_loss_has_none_recorded(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(9)])
    (row,) = query(ledger, "SELECT missing, recorded, reason FROM delivery_gaps")
    assert (row["missing"], row["recorded"], row["reason"]) == (8, 0, None)
    assert len(query(ledger, "SELECT * FROM delivery_gaps WHERE recorded < missing")) == 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12)), max_size=8))
def test_a_position_recorded_as_lost_by_several_batches_counts_once(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[int, int]]
) -> None:
    ledger = path_ledger(tmp_path_factory.mktemp("ledger") / "ledger")
    ledger.create(*TABLES)
    append(ledger, DELIVERIES, [delivery(2), delivery(9), delivery(12), delivery(20)])
    rows: list[dict[str, Any]] = []
    for batch_id, (start, length) in enumerate(ranges):  # each batch of its own: their rows may overlap
        lost = [LostRange("orders", "broker-a", 0, start, start + length, "expired")]
        rows += lost_rows(
            lost, consumer_group="g", query_id="q", batch_id=batch_id, recorded_at=START
        ).to_pylist()
    if rows:
        append(ledger, DATA_LOSSES, rows)
    lost_offsets = {offset for start, length in ranges for offset in range(start, start + length)}
    found = query(ledger, "SELECT from_offset, to_offset, missing, recorded FROM delivery_gaps")
    assert sorted(row["from_offset"] for row in found) == [3, 10, 13]
    for row in found:
        gap = set(range(row["from_offset"], row["to_offset"] + 1))
        assert (row["missing"], row["recorded"]) == (len(gap), len(gap & lost_offsets))


def test_a_tag_filter_is_not_taken_for_gaps(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(4)])
    report(ledger, 0, 9, subscription="A || B")
    assert gaps(ledger) == []


def test_the_retry_topic_is_not_taken_for_gaps(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY"), delivery(0, attempt=2, source_queue_offset=7)])
    report(ledger, 0, 1)
    report(ledger, 0, 8, topic="%RETRY%g")
    assert gaps(ledger) == []


def test_a_repeated_key_is_a_duplicate(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(1), delivery(1, worker="another")])
    (row,) = query(ledger, "SELECT * FROM duplicate_deliveries")
    assert (row["queue_offset"], row["attempt"], row["copies"], row["message_id"]) == (1, 1, 2, "ID1")


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


def test_results_hold_plain_arrow_types(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="DEAD", body=b"\xff", properties=[("a", "b")])])
    result = LedgerReader(str(ledger)).sql("SELECT keys, tags, body, properties FROM deliveries")
    assert "view" not in str(result.schema)
    assert result.to_pylist() == [
        {"keys": ["K0", "all"], "tags": "A", "body": b"\xff", "properties": [("a", "b")]}
    ]


def test_wrong_sql_is_refused_with_the_engines_reason(ledger: PathLedger) -> None:
    with pytest.raises(InvalidRequest, match="no_such_column"):
        LedgerReader(str(ledger)).sql("SELECT no_such_column FROM deliveries")


@pytest.mark.parametrize(
    "text",
    [
        "COPY (SELECT 1) TO '{out}'",
        "  -- SELECT\n/* SELECT */ copy (SELECT 1) to '{out}'",
        "/* /* */ SELECT 1 */ COPY (SELECT 1) TO '{out}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "DESC ANALYZE VERBOSE COPY (SELECT 1) TO '{out}'",
        "EXPLAIN FORMAT TREE COPY (SELECT 1) TO '{out}'",
        "SELECT 1; COPY (SELECT 1) TO '{out}'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{out}'",
        "CREATE TABLE t AS SELECT 1",
        "SELECT * INTO t FROM deliveries",
        "DROP TABLE deliveries",
        "INSERT INTO deliveries SELECT * FROM deliveries",
        "WITH a AS (SELECT 1) INSERT INTO deliveries SELECT * FROM a",
        "DELETE FROM deliveries",
        "SET datafusion.execution.batch_size = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "ATTACH 'other.db' AS other",
        "",
        "selected",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(
    ledger: PathLedger, text: str, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    reader = LedgerReader(str(ledger))
    reader.sql("SELECT 1")
    with pytest.raises(InvalidRequest) as refused:
        reader.sql(text.replace("{out}", str(tmp_path / "out.csv")))
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert not (tmp_path / "out.csv").exists()
    assert before == [path for path in sorted(tmp_path.rglob("*")) if path in before]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  select 1;",
        "-- COPY\n(SELECT 1)",
        "/* COPY t TO 'x' */ WITH a AS (SELECT 1 AS n) SELECT n FROM a",
        "VALUES (1), (2)",
        "FROM deliveries SELECT count(*)",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE VERBOSE SELECT 1",
        "DESCRIBE deliveries",
        "desc group_progress;",
        "SELECT 'COPY (SELECT 1) TO x' AS text",
    ],
)
def test_statements_that_read_are_taken(ledger: PathLedger, text: str) -> None:
    assert LedgerReader(str(ledger)).sql(text).num_rows > 0


def test_two_columns_of_one_name_are_refused(ledger: PathLedger) -> None:
    join = "FROM (SELECT 1 AS n) a CROSS JOIN (SELECT 2 AS n) b"
    with pytest.raises(InvalidRequest, match="columns are called n: AS"):
        LedgerReader(str(ledger)).sql(f"SELECT a.n, b.n {join}")
    assert LedgerReader(str(ledger)).sql(f"SELECT a.n, b.n AS m {join}").to_pylist() == [{"n": 1, "m": 2}]


def test_a_directory_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no ledger"):
        LedgerReader(tmp_path)


def test_a_parked_message_waits_and_is_neither_a_gap_nor_a_duplicate(ledger: PathLedger) -> None:
    key = [("LMQ_SHARDING_KEY", "k"), ("colour", "red")]
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", properties=key)])
    append(ledger, DELIVERIES, [delivery(n, verdict="PARKED", started_at=None) for n in (1, 2)])
    append(ledger, DELIVERIES, [delivery(3, verdict="PARKED", started_at=None, properties=key)])
    append(ledger, DELIVERIES, [delivery(0, attempt=2, verdict="PARKED", started_at=None, properties=key)])
    append(ledger, DELIVERIES, [delivery(1, finished_at=START + timedelta(seconds=90))])
    report(ledger, 0, 4)
    waiting = query(ledger, "SELECT queue_offset, attempt, sharding_key FROM parked_messages ORDER BY 1")
    assert [tuple(row.values()) for row in waiting] == [(0, 2, "k"), (2, 1, None), (3, 1, "k")]
    states = query(
        ledger, "SELECT state, attempt_count, attempts FROM delivery_history ORDER BY queue_offset"
    )
    assert [(row["state"], row["attempt_count"]) for row in states] == [
        ("PARKED", 1),
        ("ACK", 1),
        ("PARKED", 0),
        ("PARKED", 0),
    ]
    assert [attempt["verdict"] for attempt in states[0]["attempts"]] == ["RETRY"]
    assert states[2]["attempts"] is None
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries"):
        assert query(ledger, f"SELECT * FROM {view}") == [], view
    events = query(
        ledger, "SELECT event, attempt FROM message_trace WHERE queue_offset = 1 ORDER BY event_at"
    )
    assert [tuple(row.values()) for row in events] == [("PARKED", 0), ("ATTEMPT", 1)]


def test_a_message_that_was_put_off_had_no_attempt_then(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(n, verdict="RETRY", started_at=None) for n in (0, 1)])
    later = START + timedelta(seconds=90)
    append(ledger, DELIVERIES, [delivery(1, attempt=2, started_at=later, finished_at=later)])
    columns = "state, attempt_count, attempts, first_started_at, last_finished_at"
    waits, done = query(ledger, f"SELECT {columns} FROM delivery_history ORDER BY queue_offset")
    assert tuple(waits.values()) == ("RETRY", 0, None, None, None)
    assert (done["state"], done["attempt_count"], done["first_started_at"]) == ("ACK", 1, later)
    assert [attempt["attempt"] for attempt in done["attempts"]] == [2]
    events = query(
        ledger, "SELECT event, attempt FROM message_trace WHERE queue_offset = 1 ORDER BY event_at"
    )
    assert [tuple(row.values()) for row in events] == [("PUT_OFF", 1), ("ATTEMPT", 2)]
    assert [row["queue_offset"] for row in query(ledger, "SELECT queue_offset FROM pending_retries")] == [0]


def test_a_message_that_was_parked_twice_at_one_attempt_is_a_duplicate(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="PARKED"), delivery(0, verdict="PARKED"), delivery(0)])
    assert [row["copies"] for row in query(ledger, "SELECT copies FROM duplicate_deliveries")] == [2]
