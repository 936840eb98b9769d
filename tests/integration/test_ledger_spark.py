"""The ledger through real Spark and Delta: one action, one commit, the same views as without a JVM."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from delta_tables import retained_from
from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS, from_deliveries
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.idempotent import NEVER, append_once, newest_batch
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.replays import REPLAYS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.views import TABLES, VIEWS, register_views
from jobs.dead_letter import dead_messages
from jobs.group.ledger_stream import decide_start
from jobs.group.map_arrow import map_in_arrow
from jobs.group.outcomes import OutcomeTask
from jobs.group.start import handled_offsets
from jobs.handler.loader import HandlerTarget
from jobs.outbox.job import in_lanes
from jobs.redelivery.retried_messages import retried_messages
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.checkpoint import StreamCheckpoint
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

SOURCE = (
    "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, message_id STRING, "
    "keys ARRAY<STRING>, tags STRING, body BINARY, born_timestamp TIMESTAMP, store_timestamp TIMESTAMP, "
    "reconsume_times INT, properties MAP<STRING,STRING>, flag INT"
)
COUNTING_HANDLER = """
import os, pathlib

def handle(message):
    with open(os.path.join({directory!r}, "calls"), "a") as calls:
        calls.write(f"{{message.queue_offset}}\\n")
    if message.queue_offset % 3 == 0:
        raise ValueError("third")
"""


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    location = path_ledger(tmp_path / "ledger")
    location.create(*TABLES)
    return location


def messages(spark: SparkSession, rows: int) -> Any:
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    fields = ("orders", "broker-a", 0), ("K",), ("A", b"body", now, now, 0, {"colour": "red"}, 7)
    return spark.createDataFrame(
        [(*fields[0], offset, f"ID{offset}", list(fields[1]), *fields[2]) for offset in range(rows)], SOURCE
    )


def test_each_message_is_handled_once_for_one_commit(
    spark: SparkSession, ledger: PathLedger, tmp_path: Path
) -> None:
    (tmp_path / "counts_calls.py").write_text(COUNTING_HANDLER.format(directory=str(tmp_path)))
    policy = RetryPolicy.of("10s", [10_000], 16)
    target = HandlerTarget("counts_calls:handle", "auto", (str(tmp_path),))
    outcomes = map_in_arrow(
        messages(spark, 30).repartition(3),
        OutcomeTask("g", target, policy, "concurrent", "q", 0),
        DELIVERIES.ddl,
    )
    before = ledger.version(spark, DELIVERIES)
    assert append_once(outcomes, ledger, DELIVERIES, app_id="job/q", version=0)
    assert ledger.version(spark, DELIVERIES) == before + 1
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(map(int, calls)) == list(range(30))
    counted = LedgerReader(str(ledger)).sql(
        "SELECT verdict, count(*) AS n, count(body) AS bodies FROM deliveries "
        "GROUP BY verdict ORDER BY verdict"
    )
    assert counted.to_pylist() == [
        {"verdict": "ACK", "n": 20, "bodies": 0},
        {"verdict": "RETRY", "n": 10, "bodies": 10},
    ]


def test_a_batch_is_appended_once_per_checkpoint(spark: SparkSession, ledger: PathLedger) -> None:
    session = spark.newSession()
    rows = session.createDataFrame(pa.Table.from_pylist([delivery(0)], schema=DELIVERIES.arrow_schema))
    appended = [
        append_once(rows, ledger, DELIVERIES, app_id=app, version=version)
        for app, version in [("job/one", 0), ("job/one", 0), ("job/one", 1), ("job/rebuilt", 0)]
    ]
    assert appended == [True, False, True, True]
    assert ledger.read(spark, DELIVERIES).count() == 3


def test_an_empty_batch_is_remembered_too(spark: SparkSession, ledger: PathLedger) -> None:
    none = spark.newSession().createDataFrame([], DELIVERIES.ddl)
    assert append_once(none, ledger, DELIVERIES, app_id="job/one", version=4)
    assert not append_once(none, ledger, DELIVERIES, app_id="job/one", version=4)


def test_the_newest_batch_of_a_query_is_found_by_its_rows(spark: SparkSession, ledger: PathLedger) -> None:
    assert newest_batch(ledger, DELIVERIES, query_id="q", spark=spark) == NEVER
    append(ledger, DELIVERIES, [delivery(0, batch_id=3), delivery(1, batch_id=8, query_id="other")])
    assert newest_batch(ledger, DELIVERIES, query_id="q", spark=spark) == 3


def test_spark_and_deltalake_answer_the_views_alike(spark: SparkSession, ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(1, verdict="RETRY"), delivery(4), delivery(4)])
    append(ledger, DELIVERIES, [delivery(1, attempt=2, verdict="RETRY"), delivery(5, verdict="DEAD")])
    append(ledger, DELIVERIES, [delivery(6, sends=2), delivery(7, sends=1)])
    parked = delivery(8, verdict="PARKED", started_at=None, properties=[("LMQ_SHARDING_KEY", "k")])
    append(ledger, DELIVERIES, [parked, delivery(0, verdict="PARKED", started_at=None)])
    append(ledger, SENT_MESSAGES, [of_send(SENT_MESSAGES, 7)])
    refused = {"code": "NO_PERMISSION", "error": "not writable"}
    append(ledger, REFUSED_SENDS, [of_send(REFUSED_SENDS, 6, 2, **refused), of_send(REFUSED_SENDS, 6)])
    append(ledger, DISCARDED_SENDS, [of_send(DISCARDED_SENDS, 6, operator="anna@host", reason="a test")])
    append(ledger, SKIPPED_MESSAGES, [skipped(1, 1)])
    append(ledger, MESSAGES, [stored(5), stored(0, reconsume_times=1, message_id="ID1")])
    append(ledger, DEAD_LETTERS, [dead_letter(6, 3)])
    append(ledger, REPLAYS, [replayed(6, 3), replayed(6, 3, "DISCARD", reason="a test")])
    report(ledger, 0, 3, max_offset=9)
    report(ledger, 3, 9, batch_id=1, max_offset=9)
    register_views(spark, ledger)
    reader = LedgerReader(str(ledger))
    for view in VIEWS:
        wanted = reader.sql(f"SELECT * FROM {view}")
        names = [name for name in wanted.column_names if name != "age"]
        without_jvm = wanted.select(names).to_pylist()
        with_spark = spark.sql(f"SELECT {', '.join(names)} FROM {view}").toArrow().to_pylist()
        assert without_jvm, view
        assert sorted(map(_comparable, without_jvm)) == sorted(map(_comparable, with_spark)), view


def test_spark_opens_no_file_of_a_history_that_the_statistics_rule_out(
    spark: SparkSession, ledger: PathLedger
) -> None:
    append(ledger, DELIVERIES, [delivery(7)])
    for file in ledger.path(DELIVERIES).glob("*.parquet"):
        file.unlink()
    append(ledger, DELIVERIES, [delivery(30, verdict="RETRY"), delivery(30, 2)])
    register_views(spark, ledger)
    for condition in ("message_id = 'ID30'", "topic = 'orders' AND queue_id = 0 AND queue_offset = 30"):
        found = spark.sql(
            f"SELECT queue_offset, state, attempt_count FROM delivery_history WHERE {condition}"
        )
        assert found.toArrow().to_pylist() == [{"queue_offset": 30, "state": "ACK", "attempt_count": 2}]


def test_the_ledger_as_it_was_is_read_by_version_and_time(spark: SparkSession, ledger: PathLedger) -> None:
    for offset in range(3):
        append(ledger, DELIVERIES, [delivery(offset)])
    ledger.open(DELIVERIES).optimize.compact()
    begun = datetime.now(UTC).timestamp() - 7200
    commits = sorted((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))
    for number, commit in enumerate(commits):  # Delta takes a commit's time from its file
        os.utime(commit, (begun + 60 * number,) * 2)
    then = datetime.fromtimestamp(begun + 150, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    for at in ("VERSION AS OF 2", f"TIMESTAMP AS OF '{then}'"):
        found = spark.sql(f"SELECT queue_offset FROM {ledger.qualified(DELIVERIES)} {at} ORDER BY 1")
        assert [row.queue_offset for row in found.collect()] == [0, 1], at


def _comparable(value: Any) -> str:
    if isinstance(value, dict):
        return str([(name, _comparable(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        return str([_comparable(inner) for inner in value])
    if isinstance(value, (int, float)) or type(value).__name__ == "Decimal":
        return f"{float(value):.6g}"
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else str(value)


def test_a_retried_message_says_where_it_comes_from(spark: SparkSession, ledger: PathLedger) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    fields: dict[str, Any] = {
        "flag": 7,
        "delay_level": 3,
        "properties": [("colour", "red")],
        "next_attempt_at": later,
    }
    first = delivery(3, verdict="RETRY", body=b"x", **fields)
    again = delivery(
        4,
        attempt=2,
        verdict="RETRY",
        body=b"y",
        delay_level=4,
        properties=[("RETRY_TOPIC", "old"), ("LMQ_ORIGIN", "old/0/0"), ("LMQ_FIRST_ATTEMPT_AT", "1000")],
    )
    append(ledger, DELIVERIES, [first, again])
    started_ms = round(first["started_at"].timestamp() * 1000)
    origin = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID3", "LMQ_ORIGIN": "broker-a/0/3"}
    one = {"colour": "red", **origin, "LMQ_FIRST_ATTEMPT_AT": str(started_ms)}
    origin = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID4", "LMQ_ORIGIN": "broker-a/0/4"}
    two = {**origin, "LMQ_FIRST_ATTEMPT_AT": "1000"}
    wanted = spark.createDataFrame(
        [
            ("ID3", "%RETRY%g", b"x", ["K3", "all"], "A", one, 7, 1, 3),
            ("ID4", "%RETRY%g", b"y", ["K4", "all"], "A", two, None, 2, 4),
        ],
        "message_id string, topic string, body binary, keys array<string>, tags string, "
        "properties map<string, string>, flag int, reconsume_times int, delay_level int",
    )
    found = retried_messages(ledger.read(spark, DELIVERIES), "g").select(wanted.columns).orderBy("message_id")
    assert_df_equality(found, wanted, ignore_nullable=True, ignore_metadata=True)


def test_a_dead_letter_spans_first_to_last_attempt(spark: SparkSession, ledger: PathLedger) -> None:
    dead = delivery(
        3,
        attempt=3,
        verdict="DEAD",
        reason="attempts used up",
        body=b"x",
        properties=[("LMQ_FIRST_ATTEMPT_AT", "1795248000000"), ("colour", "red")],
    )
    append(ledger, DELIVERIES, [dead])
    given_up = ledger.read(spark, DELIVERIES)
    (row,) = from_deliveries(given_up).toArrow().to_pylist()
    assert list(row) == DEAD_LETTERS.column_names
    assert (row["attempts"], row["reason"]) == (3, "attempts used up")
    assert round(row["first_attempt_at"].timestamp() * 1000) == 1_795_248_000_000
    assert row["last_attempt_at"].timestamp() == dead["finished_at"].timestamp()
    origin = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "ID3", "LMQ_ORIGIN": "broker-a/0/3"}
    wanted = spark.createDataFrame(
        [("%DLQ%g", 2, {"colour": "red", **origin})],
        "topic string, reconsume_times int, properties map<string, string>",
    )
    assert_df_equality(dead_messages(given_up, "g").select(wanted.columns), wanted, ignore_nullable=True)


def test_a_rebuilt_checkpoint_goes_on_after_the_last_row_or_report(
    spark: SparkSession, ledger: PathLedger
) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(1), delivery(0, attempt=2, source_queue_offset=7)])
    append(ledger, DELIVERIES, [delivery(9, consumer_group="other")])
    report(ledger, 0, 2)
    report(ledger, 0, 5, queue_id=1)
    kept = {
        "consumer_group": "g",
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 1,
        "next_offset": 9,
    }
    append(ledger, CONSUMER_OFFSETS, retained_from.rows([kept], START).to_pylist())  # it says no progress
    positions = {("orders", "broker-a", 0): 2, ("orders", "broker-a", 1): 5, ("%RETRY%g", "broker-a", 0): 8}
    assert handled_offsets(ledger, spark, "g") == positions
    assert CONSUMER_OFFSETS.key[-1] == "batch_id"


def test_a_stream_over_an_empty_ledger_begins_with_its_commits_and_no_snapshot(
    spark: SparkSession, ledger: PathLedger, tmp_path: Path
) -> None:
    checkpoint = StreamCheckpoint(tmp_path / "checkpoint")
    assert append_once(spark.createDataFrame([], DELIVERIES.ddl), ledger, DELIVERIES, app_id="a", version=0)
    start = decide_start(spark, ledger, DELIVERIES, checkpoint, "SELECT NULL AS oldest")
    assert start == {"startingVersion": "1"}
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY")])
    seen: list[int] = []

    def look(rows: Any, batch_id: int) -> None:
        seen.extend(row.queue_offset for row in rows.collect())

    for _ in range(2):  # the second run has nothing more to read
        query = (
            ledger.read_stream(spark, DELIVERIES, decide_start(spark, ledger, DELIVERIES, checkpoint, ""))
            .writeStream.foreachBatch(look)
            .option("checkpointLocation", checkpoint.prepare())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert seen == [0]


def test_a_stream_begins_at_the_same_row_in_a_session_of_another_time_zone(
    spark: SparkSession, ledger: PathLedger, tmp_path: Path
) -> None:
    checkpoint = StreamCheckpoint(tmp_path / "checkpoint")
    now = datetime.now(UTC)
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", finished_at=now)])
    western = spark.newSession()
    western.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    oldest = "SELECT min(finished_at) AS oldest FROM deliveries"
    seen: list[int] = []
    query = (
        ledger.read_stream(western, DELIVERIES, decide_start(western, ledger, DELIVERIES, checkpoint, oldest))
        .writeStream.foreachBatch(lambda rows, _: seen.extend(row.queue_offset for row in rows.collect()))
        .option("checkpointLocation", checkpoint.prepare())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert seen == [0]


def test_each_lane_of_an_outbox_is_a_task_of_its_own(spark: SparkSession, ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, queue_id=queue, sends=1) for queue in range(32)])
    rows = ledger.read(spark, DELIVERIES).withColumns(
        {"sent_numbers": F.array(), "given_up_numbers": F.array()}
    )
    lanes = in_lanes(rows, ["q"]).select("lane", F.spark_partition_id().alias("task")).distinct().collect()
    assert sorted((row.lane, row.task) for row in lanes) == [(0, 0), (1, 1), (2, 2), (3, 3)]
