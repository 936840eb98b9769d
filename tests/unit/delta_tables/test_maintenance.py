"""Compaction changes no row, and retention deletes old ones only."""

from __future__ import annotations

import os
import re
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.ledger_reader import LedgerReader
from delta_tables.maintenance import KEPT_HOURS, maintain
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.views import TABLES
from delta_tables.written_rows import WRITTEN_ROWS
from store_native.errors import InvalidRequest, Unavailable
from tests.support.ledger_rows import START, append, dead_letter, delivery, path_ledger, report, skipped


def add_newer_batch(ledger: PathLedger, *groups: str) -> None:
    """Groups go on with another topic: their newest batch stays, whatever its age."""
    at: dict[str, Any] = {
        "topic": "newer",
        "source_topic": "newer",
        "finished_at": START + timedelta(days=24),
    }
    append(ledger, DELIVERIES, [delivery(0, consumer_group=group, batch_id=1, **at) for group in groups])


def test_small_files_become_one_and_no_row_changes(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    for offset in range(6):
        append(ledger, DELIVERIES, [delivery(offset)])
    (report,) = maintain(ledger)
    assert (report.files_removed, report.files_added, report.rows_deleted) == (6, 1, 0)
    assert LedgerReader(tmp_path).sql("SELECT count(*) AS n FROM deliveries").to_pylist() == [{"n": 6}]


def test_rows_older_than_asked_are_deleted(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0), delivery(1, finished_at=START + timedelta(days=20), batch_id=1)])
    (report,) = maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert report.rows_deleted == 1
    left = LedgerReader(tmp_path).sql("SELECT queue_offset FROM deliveries").to_pylist()
    assert left == [{"queue_offset": 1}]


def test_the_newest_batch_stays_whole_with_what_came_of_it(tmp_path: Path) -> None:
    """The newest of the checkpoint that was in use last."""
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n, query_id="before", batch_id=7) for n in (0, 1)])
    append(ledger, DELIVERIES, [delivery(n, batch_id=0) for n in (2, 3)])
    append(ledger, DELIVERIES, [delivery(4, batch_id=1), delivery(5, batch_id=1, verdict="DEAD")])
    append(ledger, DELIVERIES, [delivery(0, consumer_group="other")])
    append(ledger, DEAD_LETTERS, [dead_letter(3, 1), dead_letter(5, 1)])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    reader = LedgerReader(tmp_path)
    left = reader.sql(
        "SELECT consumer_group AS g, queue_offset AS n FROM deliveries ORDER BY 1, 2"
    ).to_pylist()
    assert [tuple(row.values()) for row in left] == [("g", 4), ("g", 5), ("other", 0)]
    assert reader.sql("SELECT queue_offset AS n FROM dead_letters").to_pylist() == [{"n": 5}]


def test_what_retention_deletes_is_no_gap_and_what_is_missing_behind_it_is_one(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(*TABLES)
    days = {0: 1, 1: 2, 2: 16, 3: 14, 4: 17, 5: 18, 7: 18}  # calls end in another order than they began
    append(ledger, DELIVERIES, [delivery(n, finished_at=START + timedelta(days=d)) for n, d in days.items()])
    report(ledger, 0, 2)
    report(ledger, 2, 8, batch_id=9000 * 16)
    report(ledger, 0, 5, group="idle")
    idle = [delivery(n, consumer_group="idle", sends=n % 2) for n in range(5)]
    append(ledger, DELIVERIES, idle)  # the rows that send wait, and stay
    add_newer_batch(ledger, "g", "idle")
    gaps = "SELECT consumer_group AS g, from_offset AS n, missing FROM delivery_gaps"
    missing = [{"g": "g", "n": 6, "missing": 1}]
    assert LedgerReader(tmp_path).sql(gaps).to_pylist() == missing
    left_of_orders = "SELECT queue_offset AS n FROM deliveries WHERE topic = 'orders' ORDER BY 1"
    for day in (25, 26):  # the second time nothing is left to delete
        maintain(ledger, keep_days=10, now=START + timedelta(days=day))
        left = LedgerReader(tmp_path).sql(left_of_orders).to_pylist()
        assert [row["n"] for row in left] == [1, 2, 3, 4, 5, 7]
        assert LedgerReader(tmp_path).sql(gaps).to_pylist() == missing
        kept = "SELECT consumer_group, next_offset FROM consumer_offsets WHERE query_id = 'retention'"
        rows = LedgerReader(tmp_path).sql(f"{kept} ORDER BY 1").to_pylist()
        assert [tuple(row.values()) for row in rows] == [("g", 4), ("idle", 5)]
    maintain(ledger, keep_days=10, now=START + timedelta(days=40))
    assert LedgerReader(tmp_path).sql(gaps).to_pylist() == []
    progress = LedgerReader(tmp_path).sql("SELECT * FROM group_progress").to_pylist()
    assert progress == [], "what maintenance says is no progress"
    rows = LedgerReader(tmp_path).sql(f"{kept} ORDER BY 1").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("g", 8), ("idle", 5)]


@pytest.mark.parametrize("days", [0, -3, 99_999_999])
def test_days_that_are_none_are_refused_and_nothing_is_deleted(tmp_path: Path, days: int) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0)])
    with pytest.raises(InvalidRequest, match=f"1 to 36500 days, not {days}"):
        maintain(ledger, keep_days=days)
    assert LedgerReader(tmp_path).sql("SELECT queue_offset FROM deliveries").num_rows == 1


def test_a_ledger_of_an_earlier_version_is_shortened(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(*TABLES)
    append(ledger, DELIVERIES, [delivery(0), delivery(1, finished_at=START + timedelta(days=20), batch_id=1)])
    shutil.rmtree(ledger.path(CONSUMER_OFFSETS))
    schema = CONSUMER_OFFSETS.arrow_schema
    earlier = schema.remove(schema.get_field_index("topic_id"))
    DeltaTable.create(str(ledger.path(CONSUMER_OFFSETS)), schema=earlier)
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    left = LedgerReader(tmp_path).sql("SELECT queue_offset FROM deliveries").to_pylist()
    assert left == [{"queue_offset": 1}]


def test_a_parked_message_and_the_attempt_it_waits_for_stay_however_old(tmp_path: Path) -> None:
    """And what was parked and is done goes with its attempt: it must not seem to wait again."""
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0), delivery(1, verdict="PARKED"), delivery(1, attempt=1)])
    append(ledger, DELIVERIES, [delivery(2, verdict="RETRY"), delivery(3, verdict="PARKED")])
    append(ledger, DELIVERIES, [delivery(4), delivery(0, consumer_group="other")])
    add_newer_batch(ledger, "g", "other")
    (report,) = maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    of_orders = "SELECT queue_offset FROM deliveries WHERE topic = 'orders' ORDER BY 1"
    left = LedgerReader(tmp_path).sql(of_orders).to_pylist()
    assert [row["queue_offset"] for row in left] == [2, 3, 4], report
    parked = LedgerReader(tmp_path).sql("SELECT queue_offset FROM parked_messages").to_pylist()
    assert parked == [{"queue_offset": 3}]


def test_a_retry_that_nobody_may_have_sent_stays_with_what_came_of_later_ones(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(*TABLES)
    waits, followed = delivery(1, verdict="RETRY"), delivery(2, verdict="RETRY")
    early = delivery(0)["finished_at"]
    sends = delivery(2, attempt=2, sends=1)
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY"), delivery(0, attempt=2, finished_at=early)])
    append(ledger, DELIVERIES, [waits, followed, sends, delivery(3)])
    others = [delivery(1, verdict="RETRY"), delivery(1, attempt=2)]
    append(ledger, DELIVERIES, [row | {"consumer_group": "other"} for row in others])
    sent = {name: sends[name] for name in SENT_MESSAGES.column_names if name in sends}
    append(ledger, SENT_MESSAGES, [sent | {"number": 1, "sent_at": sends["finished_at"]}])
    append(ledger, SKIPPED_MESSAGES, [skipped(1, 1, consumer_group=group) for group in ("g", "other")])
    add_newer_batch(ledger, "g", "other")
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    left = (
        "SELECT consumer_group AS g, queue_offset AS n, attempt AS a FROM {} WHERE topic = 'orders' "
        "ORDER BY 1, 2, 3"
    )
    reader = LedgerReader(tmp_path)
    kept = [("g", 1, 1), ("g", 2, 1), ("g", 2, 2)]
    assert [tuple(row.values()) for row in reader.sql(left.format("deliveries")).to_pylist()] == kept
    found = reader.sql(left.format("pending_retries")).to_pylist()
    assert [tuple(row.values()) for row in found] == [("g", 1, 1)]
    assert reader.sql("SELECT * FROM pending_sends").to_pylist() == []
    skips = reader.sql("SELECT consumer_group AS g, queue_offset AS n FROM skipped_messages").to_pylist()
    assert skips == [{"g": "g", "n": 1}]

    append(ledger, DELIVERIES, [delivery(1, attempt=2)])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql(left.format("deliveries")).num_rows == 0


def test_what_is_given_up_stays_until_it_has_landed_with_what_landed_since(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    given_up = [delivery(n, verdict="DEAD") for n in (1, 2)]
    append(ledger, DELIVERIES, [delivery(0, verdict="DEAD"), *given_up, delivery(3)])
    append(ledger, DEAD_LETTERS, [dead_letter(0, 1), dead_letter(2, 1)])
    add_newer_batch(ledger, "g")
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    reader = LedgerReader(tmp_path)
    left = "SELECT queue_offset FROM {} WHERE topic = 'orders' ORDER BY 1"
    pending = reader.sql(left.format("pending_dead_letters")).to_pylist()
    assert pending == [{"queue_offset": 1}]
    rows = reader.sql(left.format("deliveries")).to_pylist()
    assert [row["queue_offset"] for row in rows] == [1, 2]
    landed = reader.sql(left.format("dead_letters")).to_pylist()
    assert landed == [{"queue_offset": 2}]

    append(ledger, DEAD_LETTERS, [dead_letter(1, 1)])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql(left.format("deliveries")).num_rows == 0


def test_an_attempt_that_suspends_a_lane_stays_before_anything_is_parked_behind_it(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0), delivery(2), delivery(1, consumer_group="other")])
    add_newer_batch(ledger, "g", "other")
    append(ledger, DELIVERIES, [delivery(1, verdict="RETRY", properties=[("LMQ_ORDERLY", "1")])])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    left = (
        "SELECT consumer_group AS g, queue_offset AS n FROM deliveries WHERE topic = 'orders' ORDER BY 1, 2"
    )
    assert LedgerReader(tmp_path).sql(left).to_pylist() == [{"g": "g", "n": 1}, {"g": "g", "n": 2}]

    append(ledger, DELIVERIES, [delivery(1, attempt=2)])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql(left).to_pylist() == []


def test_what_was_sent_does_not_wait_again_where_parked_messages_keep_its_row(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    at = [START + timedelta(minutes=n) for n in range(3)]
    sends = delivery(1, sends=1, finished_at=at[1])
    parked = delivery(2, verdict="PARKED", finished_at=at[2])
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", finished_at=at[0]), sends, parked])
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    append(ledger, SENT_MESSAGES, [{name: sends[name] for name in key} | {"number": 1, "sent_at": at[1]}])
    add_newer_batch(ledger, "g")
    reader = LedgerReader(tmp_path)
    assert reader.sql("SELECT * FROM pending_sends").to_pylist() == []
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql("SELECT * FROM pending_sends").to_pylist() == []


def test_what_was_given_up_does_not_wait_to_land_again_where_parked_messages_keep_its_row(
    tmp_path: Path,
) -> None:
    ledger = path_ledger(tmp_path)
    at = [START + timedelta(minutes=n) for n in range(3)]
    given_up, parked = delivery(1, verdict="DEAD", finished_at=at[1]), delivery(2, verdict="PARKED")
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", finished_at=at[0]), given_up])
    append(ledger, DELIVERIES, [parked | {"finished_at": at[2]}])
    append(ledger, DEAD_LETTERS, [dead_letter(1, 1, last_attempt_at=at[1])])
    append(ledger, DEAD_LETTERS, [dead_letter(1, 1, last_attempt_at=at[1], consumer_group="other")])
    add_newer_batch(ledger, "g")
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    reader = LedgerReader(tmp_path)
    assert reader.sql("SELECT * FROM pending_dead_letters").to_pylist() == []
    landed = reader.sql("SELECT consumer_group AS g FROM dead_letters").to_pylist()
    assert landed == [{"g": "g"}], "another group's is old"


def test_a_path_without_a_ledger_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"no ledger at {tmp_path / 'typo'}"):
        maintain(path_ledger(tmp_path / "typo"), keep_days=10)
    assert list(tmp_path.iterdir()) == []


def test_every_table_has_an_age(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(*TABLES)
    assert {report.table for report in maintain(ledger, keep_days=10)} == {table.name for table in TABLES}


def test_a_table_being_written_is_left_alone(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0)])
    lock = WriterLock(tmp_path, DELIVERIES.name)
    lock.acquire()
    with pytest.raises(Unavailable, match="STORE_LOCKED"):
        maintain(ledger)
    lock.release()


def test_a_skip_goes_with_its_time_but_where_a_lane_waits(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    suspends = [("LMQ_ORDERLY", "1")]
    append(ledger, DELIVERIES, [delivery(1, verdict="RETRY", properties=suspends), delivery(2)])
    rows = [skipped(1, 1), skipped(1, 1, consumer_group="other")]
    append(ledger, SKIPPED_MESSAGES, [*rows, skipped(0, 0, consumer_group="g")])
    add_newer_batch(ledger, "g")
    reports = maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert [report.table for report in reports] == ["skipped_messages", "deliveries"], "a skip goes first"
    left = LedgerReader(tmp_path).sql("SELECT consumer_group AS g, queue_offset AS n FROM skipped_messages")
    assert left.to_pylist() == [{"g": "g", "n": 1}]


def test_a_row_whose_messages_wait_stays_with_what_says_which_were_sent_since(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    sends = [delivery(n, sends=1, finished_at=START + timedelta(minutes=n)) for n in range(4)]
    others = [
        delivery(9, finished_at=START + timedelta(minutes=3)),
        delivery(0, sends=1, consumer_group="other"),
    ]
    append(ledger, DELIVERIES, [*sends, *others])
    sent = [
        {name: row[name] for name in key}
        | {"number": 1, "sent_at": row["finished_at"] + timedelta(seconds=1)}
        for row in (sends[0], sends[2], sends[3], others[1])
    ]
    append(ledger, SENT_MESSAGES, sent)
    add_newer_batch(ledger, "g", "other")
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    reader = LedgerReader(tmp_path)
    left = "SELECT consumer_group AS g, queue_offset AS n FROM {} WHERE topic = 'orders' ORDER BY 1, 2"
    assert reader.sql(left.format("deliveries")).to_pylist() == [{"g": "g", "n": n} for n in (1, 2, 3)]
    assert reader.sql(left.format("sent_messages")).to_pylist() == [{"g": "g", "n": n} for n in (2, 3)]
    assert reader.sql(left.format("pending_sends")).to_pylist() == [{"g": "g", "n": 1}]

    append(
        ledger,
        DISCARDED_SENDS,
        [{name: sends[1][name] for name in key} | {"number": 1, "discarded_at": START}],
    )
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql(left.format("deliveries")).to_pylist() == []


def test_files_are_kept_for_streams_that_were_paused_for_a_month(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0)])
    with pytest.raises(InvalidRequest, match="168 hours at least"):
        maintain(ledger, vacuum_hours=1)
    properties = ledger.open(DELIVERIES).metadata().configuration
    assert properties["delta.logRetentionDuration"] == "interval 31 days"
    assert KEPT_HOURS == 31 * 24


@pytest.mark.parametrize(("days", "left"), [(30, 3), (32, 1)])
def test_a_file_that_the_log_has_forgotten_is_kept_as_long_as_any(
    tmp_path: Path, days: int, left: int
) -> None:
    ledger = path_ledger(tmp_path)
    for offset in range(2):
        append(ledger, DELIVERIES, [delivery(offset)])
    files = list(ledger.path(DELIVERIES).glob("*.parquet"))
    ledger.open(DELIVERIES).optimize.compact()
    at_once = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    ledger.open(DELIVERIES).alter.set_table_properties(at_once)
    ledger.open(DELIVERIES).create_checkpoint()
    written_at = time.time() - days * 24 * 3600
    for file in files:
        os.utime(file, (written_at, written_at))
    maintain(ledger)
    assert len(list(ledger.path(DELIVERIES).glob("*.parquet"))) == left


def test_a_maintained_file_says_which_ids_it_has_not(tmp_path: Path) -> None:
    """Ids of two brokers lie apart: every file's least and greatest are those of both."""
    ledger = path_ledger(tmp_path)
    for half in (0, 1):
        ids = [f"{broker}{offset:05}" for offset in range(half, 200, 2) for broker in ("7F", "F4")]
        append(ledger, DELIVERIES, [delivery(n, message_id=each) for n, each in enumerate(ids)])
    maintain(ledger)
    plan = LedgerReader(tmp_path).sql("EXPLAIN ANALYZE SELECT tags FROM deliveries WHERE message_id = '9A'")
    (text,) = (row["plan"] for row in plan.to_pylist())
    assert re.search(r"row_groups_pruned_bloom_filter=1 total (?:→|->) 0 matched", text), text


def test_rows_of_users_tables_that_wait_keep_what_was_written_since(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    at = [START + timedelta(minutes=n) for n in range(4)]
    kept = [{"table_name": "t", "row_json": "{}"}]
    writes = [delivery(n, writes=1, table_rows=kept, finished_at=at[n]) for n in range(3)]
    append(ledger, DELIVERIES, [*writes, delivery(3, finished_at=at[3])])
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")

    def written(n: int) -> dict[str, Any]:
        return {name: writes[n][name] for name in key} | {"number": 1, "table_name": "t", "written_at": at[n]}

    append(ledger, WRITTEN_ROWS, [written(0), written(2)])
    append(ledger, SENT_MESSAGES, [])
    add_newer_batch(ledger, "g")
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    left = "SELECT queue_offset AS n FROM {} WHERE topic = 'orders' ORDER BY 1"
    reader = LedgerReader(tmp_path)
    assert reader.sql(left.format("deliveries")).to_pylist() == [{"n": 1}, {"n": 2}]
    assert reader.sql(left.format("written_rows")).to_pylist() == [{"n": 2}]
    assert reader.sql(left.format("pending_sends")).to_pylist() == [{"n": 1}]

    append(ledger, WRITTEN_ROWS, [written(1)])
    maintain(ledger, keep_days=10, now=START + timedelta(days=25))
    assert LedgerReader(tmp_path).sql(left.format("deliveries")).to_pylist() == []
