"""A consumer group end to end: a real broker, real Spark, real Delta, in this process."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.archive import ArchiveSettings, Landed, archive
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from store_native.errors import InvalidRequest, LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.metrics import Samples
from tests.support.spark_streams import TRIGGER, forget_last_commit

HANDLERS = """
import pyarrow as pa
import pyarrow.compute as pc
from lakemq.handler import Verdict

def hundredths(message):
    number = int(message.body)
    if number % 100 == 0:
        raise ValueError(f"{number} fails, attempt {message.attempt}")
    if number == 7:
        return Verdict.dead("seven")

def once(message):
    assert message.properties.get("colour") == "red" and message.keys == (f"K{message.text}",)
    if message.attempt == 1 and int(message.body) == 5:
        return Verdict.retry("1s", reason="first time")

def batches(batch: pa.RecordBatch):
    bad = pc.equal(batch.column("body").cast(pa.string()), "3")
    return pc.if_else(bad, "DEAD", "ACK")
"""
Settings = Callable[..., ConsumeSettings]


@pytest.fixture
def settings(tmp_path: Path, shared_broker: BrokerProcess) -> Settings:
    module = f"handlers_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(HANDLERS)

    def make(topic: str, handler: str, **changes: Any) -> ConsumeSettings:
        values: dict[str, Any] = {
            "group": f"group-of-{topic}",
            "topics": (topic,),
            "handler": HandlerTarget(f"{module}:{handler}", "auto", (str(tmp_path),)),
            "ledger": ledger_at(str(tmp_path / "ledger")),
            "endpoint": shared_broker.endpoint,
            "start": "earliest",
            "max_reconsume_times": 1,
            "retry_delays": "1s",
            "trigger": TRIGGER,
            "until_idle_s": 0.5,
        }
        return ConsumeSettings(**(values | changes))

    return make


def post(client: Client, topic: str, numbers: range, tags: str = "A") -> None:
    lines = (
        f'{{"body":"{n}","keys":["K{n}"],"tags":"{tags}","properties":{{"colour":"red"}}}}' for n in numbers
    )
    client.send_ndjson(topic, "\n".join(lines).encode())


def query(settings: ConsumeSettings, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LedgerReader(str(settings.ledger)).sql(text).to_pylist()
    return rows


def test_a_group_handles_retries_and_gives_up_each_message_once_also_after_losing_its_checkpoint(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("orders", read_queue_nums=2, write_queue_nums=2)
    post(client, "orders", range(1, 1_001))
    chosen = settings("orders", "hundredths", path=str(shared_broker.store_path))

    consume(chosen, lambda: spark)
    post(client, "orders", range(1_001, 1_201))
    consume(chosen, lambda: spark)
    assert chosen.ledger.checkpoints is not None
    shutil.rmtree(chosen.ledger.checkpoints)
    post(client, "orders", range(1_201, 1_301))
    consume(chosen, lambda: spark)

    counted = query(
        chosen,
        "SELECT attempt, verdict, count(*) AS n FROM deliveries "
        "GROUP BY attempt, verdict ORDER BY attempt, verdict",
    )
    assert [tuple(row.values()) for row in counted] == [
        (1, "ACK", 1_286),
        (1, "DEAD", 1),
        (1, "RETRY", 13),
        (2, "DEAD", 13),
    ]
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert query(chosen, f"SELECT * FROM {view}") == [], view
    (seven,) = query(chosen, "SELECT * FROM dead_letters WHERE reason = 'seven'")
    assert (seven["attempts"], seven["body"], seven["keys"]) == (1, b"7", ["K7"])
    (story,) = query(chosen, "SELECT * FROM delivery_history WHERE keys = 'K300'")
    assert [a["error_text"] for a in story["attempts"]] == ["300 fails, attempt 1", "300 fails, attempt 2"]
    assert story["attempts"][1]["started_at"] >= story["attempts"][0]["next_attempt_at"]

    assert [queue.max_offset for queue in client.queues("%RETRY%group-of-orders")] == [13]
    assert [queue.max_offset for queue in client.queues("%DLQ%group-of-orders")] == [14]
    ends = {("orders", queue.queue_id): queue.max_offset for queue in client.queues("orders")}
    assert client.group_offsets("group-of-orders") == {**ends, ("%RETRY%group-of-orders", 0): 13}
    (progress,) = query(chosen, "SELECT sum(lag) AS lag, sum(reached_offset) AS reached FROM group_progress")
    assert progress == {"lag": 0, "reached": 1_313}

    page = Samples(client.metrics())
    handled = [
        sample
        for sample in page.named("lakemq_group_messages_total")
        if sample.labels["consumer_group"] == "group-of-orders"
    ]
    assert {sample.labels["verdict"]: sample.value for sample in handled} == {
        "ACK": 1_286,
        "RETRY": 13,
        "DEAD": 14,
    }


def test_a_retried_message_keeps_keys_properties_and_key_of_the_ledger(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("parcels", read_queue_nums=1, write_queue_nums=1)
    post(client, "parcels", range(10))
    chosen = settings("parcels", "once")
    consume(chosen, lambda: spark)
    rows = query(chosen, "SELECT * FROM deliveries WHERE queue_offset = 5 ORDER BY attempt")
    assert [(row["attempt"], row["verdict"], row["source_topic"]) for row in rows] == [
        (1, "RETRY", "parcels"),
        (2, "ACK", "%RETRY%group-of-parcels"),
    ]
    assert rows[0]["message_id"] == rows[1]["message_id"]
    assert (rows[0]["reason"], rows[0]["delay_level"]) == ("first time", 1)


def test_a_message_too_full_for_a_retry_becomes_a_dead_letter_and_stops_nobody(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("full", read_queue_nums=1, write_queue_nums=1)
    long = "x" * 32_200
    full = {"body": "100", "tags": "A", "properties": {"long": long}}
    client.send_ndjson("full", json.dumps(full).encode())
    post(client, "full", range(200, 201))
    chosen = settings("full", "hundredths")
    consume(chosen, lambda: spark)
    rows = query(
        chosen, "SELECT queue_offset, attempt, verdict FROM deliveries ORDER BY queue_offset, attempt"
    )
    assert [tuple(row.values()) for row in rows] == [(0, 1, "DEAD"), (1, 1, "RETRY"), (1, 2, "DEAD")]
    (letter,) = query(chosen, "SELECT * FROM dead_letters WHERE queue_offset = 0")
    assert "no space" in letter["reason"]
    assert letter["error_text"] == "100 fails, attempt 1"
    assert letter["properties"] == [("long", long)]
    sent = client.pull("%DLQ%group-of-full", 0, 0).messages
    origins = {message.properties["LMQ_ORIGIN"].rpartition("/")[2]: message for message in sent}
    assert "long" not in origins["0"].properties
    assert origins["1"].properties["colour"] == "red"


def test_a_vectorised_handler_over_http_with_a_tag_filter(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("letters", read_queue_nums=1, write_queue_nums=1)
    for start in (0, 4):
        post(client, "letters", range(start, start + 2), tags="A")
        post(client, "letters", range(start + 2, start + 4), tags="B")
    chosen = settings("letters", "batches", tags="B")
    consume(chosen, lambda: spark)
    rows = query(chosen, "SELECT queue_offset, verdict FROM deliveries ORDER BY queue_offset")
    assert [tuple(row.values()) for row in rows] == [(2, "ACK"), (3, "DEAD"), (6, "ACK"), (7, "ACK")]
    assert query(chosen, "SELECT * FROM delivery_gaps") == []
    (report,) = query(chosen, "SELECT * FROM group_progress WHERE topic = 'letters'")
    assert (report["subscription"], report["reached_offset"]) == ("B", 8)


def test_a_new_group_begins_at_the_end_unless_asked_otherwise(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("old", read_queue_nums=1, write_queue_nums=1)
    post(client, "old", range(1, 4))
    default = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger_at("ledger")).start
    chosen = settings("old", "hundredths", start=default)
    consume(chosen, lambda: spark)
    post(client, "old", range(4, 6))
    consume(chosen, lambda: spark)
    rows = query(chosen, "SELECT queue_offset FROM deliveries ORDER BY queue_offset")
    assert [row["queue_offset"] for row in rows] == [3, 4]


def test_a_job_that_ended_while_spark_planned_its_first_batches_starts_again(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("planned", read_queue_nums=1, write_queue_nums=1)
    post(client, "planned", range(99, 102))
    chosen = settings("planned", "hundredths")
    archived = ArchiveSettings(
        ("planned",), chosen.ledger, endpoint=shared_broker.endpoint, trigger="availableNow"
    )
    drafts = []
    for checkpoint in (
        *(chosen.checkpoint_of(job) for job in ("group", "reactions")),
        archived.checkpoint_directory,
    ):
        draft = checkpoint / "offsets" / ".0.74e08250-6253-4f45-ab01-8eec40eaf3db.tmp"
        draft.parent.mkdir(parents=True)
        draft.write_text("v1\n{")
        drafts.append(draft)
    consume(chosen, lambda: spark)
    archive(archived, lambda: spark)
    rows = query(chosen, "SELECT attempt, verdict FROM deliveries ORDER BY queue_offset, attempt")
    assert [(row["attempt"], row["verdict"]) for row in rows] == [
        (1, "ACK"),
        (1, "RETRY"),
        (2, "DEAD"),
        (1, "ACK"),
    ]
    assert query(chosen, "SELECT queue_offset FROM dead_letters") == [{"queue_offset": 1}]
    landed = query(chosen, "SELECT queue_offset FROM messages ORDER BY 1")
    assert landed == [{"queue_offset": offset} for offset in range(3)]
    assert not any(draft.exists() for draft in drafts)


def test_broadcast_mode_records_failures_and_sends_nothing(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("news", read_queue_nums=1, write_queue_nums=1)
    post(client, "news", range(99, 102))
    no_retries: dict[str, Any] = {"max_reconsume_times": None, "retry_delays": None}
    chosen = settings("news", "hundredths", mode="broadcast", **no_retries)
    consume(chosen, lambda: spark)
    rows = query(chosen, "SELECT verdict FROM deliveries ORDER BY queue_offset")
    assert [row["verdict"] for row in rows] == ["ACK", "DROPPED", "ACK"]
    assert client.group_offsets("group-of-news") == {}
    of_the_group = [topic.topic for topic in client.topics() if "group-of-news" in topic.topic]
    assert not any(queue.max_offset for name in of_the_group for queue in client.queues(name))
    assert query(chosen, "SELECT * FROM dead_letters") == []


def test_a_group_another_job_drives_is_refused_before_spark_starts(
    shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("taken", read_queue_nums=1, write_queue_nums=1)
    client.put_group("group-of-taken")
    client.acquire_lease("group-of-taken", "somebody else", 60_000)
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        consume(settings("taken", "once"), lambda: pytest.fail("a session was made"))


def test_wrong_settings_are_refused_before_spark_starts(
    shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("there", read_queue_nums=1, write_queue_nums=1)
    good = settings("there", "once")
    for wrong, code in [
        (dataclasses.replace(good, retry_delays="7s"), "ARGUMENT_ILLEGAL"),
        (dataclasses.replace(good, topics=("not-there",)), "TOPIC_NOT_EXIST"),
        (dataclasses.replace(good, handler=HandlerTarget("no_module_of_that_name:f")), "ARGUMENT_ILLEGAL"),
    ]:
        with pytest.raises(LakeMQError) as refused:
            consume(wrong, lambda: pytest.fail("a session was made"))
        assert refused.value.code == code


def test_the_archive_lands_each_message_once_also_after_losing_its_checkpoint(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("kept", read_queue_nums=2, write_queue_nums=2)
    location = ledger_at(str(tmp_path / "ledger"))
    chosen = ArchiveSettings(("kept",), location, endpoint=shared_broker.endpoint, trigger="availableNow")
    post(client, "kept", range(10))
    landed: list[Mapping[str, Landed]] = []
    archive(chosen, lambda: spark, on_end=landed.append)
    shutil.rmtree(tmp_path / "ledger" / "_checkpoints")
    post(client, "kept", range(10, 15))
    archive(chosen, lambda: spark, on_end=landed.append)
    archive(chosen, lambda: spark, on_end=landed.append)
    post(client, "kept", range(15, 16))
    archive(chosen, lambda: spark, on_end=landed.append)
    # The table's commit was in, Spark's own was not: the batch runs again.
    forget_last_commit(tmp_path / "ledger" / "_checkpoints" / "archive")
    archive(chosen, lambda: spark, on_end=landed.append)
    assert landed == [{"kept": Landed(rows, missing=0)} for rows in (10, 5, 0, 1, 1)]
    bodies = LedgerReader(tmp_path / "ledger").sql("SELECT body, properties FROM messages").to_pylist()
    assert sorted(int(row["body"]) for row in bodies) == list(range(16))
    assert bodies[0]["properties"] == [("colour", "red")]
