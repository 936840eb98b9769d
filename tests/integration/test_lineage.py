"""Runs of groups, told to a real receiver of OpenLineage.

Contract: with OpenLineage's variables set, a run says the topics it reads, what it writes, how
many rows of deliveries it wrote, and how it ended. The archive's are in test_archive_command.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.lineage_receiver import LineageReceiver, datasets, lineage_receiver

HANDLER = """
from lakemq.handler import Outgoing, Verdict

def handle(message):
    return Verdict.ack(send=Outgoing("told-invoices", message.text))
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageReceiver]:
    with lineage_receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.endpoint)
        yield receiver


def settings_of(broker: BrokerProcess, directory: Path, ledger: str, **others: Any) -> ConsumeSettings:
    (directory / "told_handlers.py").write_text(HANDLER)
    return ConsumeSettings(
        group="told",
        handler=HandlerTarget("told_handlers:handle", "auto", (str(directory),)),
        ledger=ledger_at(ledger),
        checkpoint=directory / "checkpoint",
        endpoint=broker.endpoint,
        start="earliest",
        available_now=True,
        **{"topics": (), **others},
    )


def test_a_run_of_a_group_says_what_it_read_and_wrote_and_how_it_ended(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, receiver: LineageReceiver
) -> None:
    client = shared_broker.client()
    for topic in ("told-eu", "told-us", "told-invoices"):
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    client.send_ndjson("told-eu", "\n".join(f'{{"body":"{n}"}}' for n in range(5)).encode())
    at = f"lakemq://{shared_broker.endpoint.removeprefix('http://')}"
    ledger = tmp_path / "ledger"
    pattern = {"topic_pattern": "told-(eu|us)", "send_to": ("told-invoices",)}
    settings = settings_of(shared_broker, tmp_path, str(ledger), **pattern)
    consume(settings, lambda: spark)
    assert receiver.states == ["START", "RUNNING", "COMPLETE"]
    start, _, end = receiver.events
    assert end["job"]["name"] == "consume.told"
    assert datasets(start, "inputs") == [], "a pattern's topics are known with the first batch"
    assert datasets(end, "inputs") == [(at, "told-eu"), (at, "told-us")]
    tables = [("file", str(ledger / "deliveries")), ("file", str(ledger / "dead_letters"))]
    assert datasets(start, "outputs") == datasets(end, "outputs") == [*tables, (at, "told-invoices")]
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 5

    def failing(batch_id: int) -> None:
        raise RuntimeError("a disk that is full")

    client.send("told-eu", "one more")
    with pytest.raises(LakeMQError, match="a disk that is full"):
        consume(settings, lambda: spark, after_ledger_commit=failing)
    assert receiver.states[3:] == ["START", "FAIL"]
    assert "a disk that is full" in receiver.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert receiver.events[-1]["run"]["runId"] != end["run"]["runId"]


def test_a_group_of_dead_letters_reads_a_topic_like_any(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, receiver: LineageReceiver
) -> None:
    client = shared_broker.client()
    for topic in ("%DLQ%told-dead", "told-invoices"):
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    client.send("%DLQ%told-dead", "one")
    named = {"topics": ("%DLQ%told-dead",), "send_to": ("told-invoices",)}
    consume(settings_of(shared_broker, tmp_path, str(tmp_path / "ledger"), **named), lambda: spark)
    at = f"lakemq://{shared_broker.endpoint.removeprefix('http://')}"
    assert [datasets(event, "inputs") for event in receiver.events] == [[(at, "%DLQ%told-dead")]] * 3


@pytest.mark.nightly
def test_a_table_of_a_catalog_is_told_by_its_place_and_its_name(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, receiver: LineageReceiver
) -> None:
    client = shared_broker.client()
    for topic in ("told-catalog", "told-invoices"):
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    client.send("told-catalog", "one")
    spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.told_ledger")
    named = {"topics": ("told-catalog",), "send_to": ("told-invoices",)}
    consume(settings_of(shared_broker, tmp_path, "spark_catalog.told_ledger", **named), lambda: spark)
    deliveries, dead_letters, _ = receiver.events[-1]["outputs"]
    assert deliveries["namespace"] == dead_letters["namespace"] == "file"
    assert Path(deliveries["name"]).joinpath("_delta_log").is_dir()
    (alias,) = dead_letters["facets"]["symlinks"]["identifiers"]
    assert (alias["namespace"], alias["name"], alias["type"]) == (
        "spark_catalog",
        "told_ledger.dead_letters",
        "TABLE",
    )
