"""What the views of gaps and duplicates say through deltalake."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tables.data_losses import DATA_LOSSES, LostRange
from delta_tables.data_losses import rows as lost_rows
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import TABLES
from tests.support.ledger_rows import START, append, delivery, path_ledger, query, report


def gaps(ledger: PathLedger) -> list[tuple[int, int, int]]:
    rows = query(ledger, "SELECT from_offset, to_offset, missing FROM delivery_gaps ORDER BY from_offset")
    return [(row["from_offset"], row["to_offset"], row["missing"]) for row in rows]


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
