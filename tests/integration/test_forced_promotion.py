"""What readers are told when a promotion by force gives queue offsets a second time.

Contract: a query whose position lies past the common point is told "truncated log" with topic, queue and
range and goes on, where it may, at the first message of the new epoch: none is skipped, none is taken for
another. One that had not come so far is told nothing, and the way by which a store is read makes no
difference. A group past the common point ends with the range, with its checkpoint or without, since its
ledger has those offsets as other messages'. With --on-data-loss record it goes on: each message of the new
epoch is handled once, by a name of its own, also when the checkpoint is lost among them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import InvalidRequest, LakeMQError
from structured_streaming.offsets import Offsets
from structured_streaming.options import parse_read
from structured_streaming.readers import open_reader
from structured_streaming.source.query_run import QueryRun
from structured_streaming.source.slice_reader import SliceReader
from tests.support.broker_process import BrokerProcess
from tests.support.forced_promotion import TOPIC, ForcedPromotion, send
from tests.support.spark_streams import TRIGGER

SCHEMA = StructType([StructField("body", StringType())])


HANDLER = """
def handle(message):
    pass

def stumble(message):
    if message.text.startswith("fails once") and message.attempt == 1:
        raise ValueError("at first")
"""


class Query:
    """What Spark does with the source: one batch a trigger, each run with a process of its own."""

    def __init__(self) -> None:
        self.position: dict[str, Any] | None = None

    def run(self, given: dict[str, str], limit: int | None = None) -> list[str]:
        """Runs one batch; returns its bodies."""
        options = {"subscribe": TOPIC, "startingOffsets": "earliest", "retryTimeoutMs": "20000", **given}
        chosen = parse_read(options, streaming=True)
        reader = open_reader(chosen.path, chosen.endpoint, retry_timeout_s=20.0)
        run = QueryRun(chosen, reader)
        start = run.initial() if self.position is None else Offsets.from_json(self.position)
        end = run.latest(start, limit)
        slices = SliceReader(chosen.path, chosen.endpoint, SCHEMA, "*", chosen.fail_on_data_loss)
        rows = [
            bytes(body).decode() if isinstance(body, bytes) else str(body)
            for piece in run.slices(start, end)
            for batch in slices.read_from(reader, piece)
            for body in batch.column("body").to_pylist()
        ]
        self.position = end.to_json()
        return rows


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ForcedPromotion]:
    with ForcedPromotion(tmp_path / "brokers") as brokers:
        brokers.lose(3)
        yield brokers


def by_http(broker: BrokerProcess, **given: str) -> dict[str, str]:
    return {"endpoint": broker.endpoint, **given}


def by_path(broker: BrokerProcess, **given: str) -> dict[str, str]:
    return {"path": str(broker.store_path), **given}


@pytest.mark.parametrize("way", [by_http, by_path])
def test_a_query_past_the_common_point_is_told_the_range_and_goes_on_at_the_new_epochs_messages(
    brokers: ForcedPromotion, way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query()
    assert query.run(way(brokers.master)) == brokers.old
    brokers.promote()
    new = send(brokers.slave, [f"new {number}" for number in range(6)])
    said = rf"topic {TOPIC}, broker broker-a, queue 0: truncated log: offsets \[2, 5\)"
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=said) as refused:
            query.run(way(brokers.slave))
        assert refused.value.code == "OFFSET_ILLEGAL"
    with caplog.at_level(logging.WARNING, logger="lakemq.spark"):
        assert query.run(way(brokers.slave, failOnDataLoss="false")) == new
    assert [record.getMessage().count("truncated log") for record in caplog.records] == [1]
    assert query.run(way(brokers.slave)) == []
    assert query.run(way(brokers.slave)) == [] == query.run(way(brokers.slave))
    newer = send(brokers.slave, ["newer"])
    assert query.run(way(brokers.slave)) == newer


def test_a_query_that_had_not_come_to_the_common_point_is_told_nothing(brokers: ForcedPromotion) -> None:
    query, at_it = Query(), Query()
    assert query.run(by_http(brokers.master), 1) == ["both 0"]
    assert at_it.run(by_http(brokers.master), 2) == ["both 0", "both 1"]
    brokers.promote()
    new = send(brokers.slave, [f"new {number}" for number in range(6)])
    assert query.run(by_http(brokers.slave)) == ["both 1", *new]
    assert at_it.run(by_http(brokers.slave)) == new


def test_a_checkpoint_moves_between_a_brokers_address_and_its_path_after_a_promotion(
    brokers: ForcedPromotion,
) -> None:
    brokers.promote()
    new = send(brokers.slave, [f"new {number}" for number in range(6)])
    query = Query()
    assert query.run(by_http(brokers.slave), 3) == ["both 0", "both 1", new[0]]
    assert query.run(by_path(brokers.slave), 2) == new[1:3]
    assert query.run(by_http(brokers.slave)) == new[3:]
    assert query.run(by_path(brokers.slave)) == []


def test_a_checkpoint_that_a_path_gave_before_epochs_were_read_is_told_nothing(
    brokers: ForcedPromotion,
) -> None:
    brokers.promote()
    new = send(brokers.slave, [f"new {number}" for number in range(6)])
    with brokers.slave.client() as client:
        topic_id = client.topic(TOPIC).topic_id
    query = Query()
    topics = {TOPIC: {"id": topic_id, "brokers": {"broker-a": {"0": 5}}}}
    query.position = {"v": 1, "epoch": 1, "topics": topics}
    assert query.run(by_path(brokers.slave)) == new[3:]
    assert query.position["epoch"] == 65
    assert query.run(by_path(brokers.slave)) == []


@pytest.mark.parametrize("mode", ["concurrent", pytest.param("orderly", marks=pytest.mark.nightly)])
def test_a_group_past_the_common_point_ends_with_the_range_or_goes_on_and_one_that_was_behind_goes_on(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    module = f"handlers_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(HANDLER)
    place = tmp_path / "ledger"

    def handle_all(broker: BrokerProcess, group: str, **changes: Any) -> None:
        values: dict[str, Any] = {
            "group": group,
            "topics": (TOPIC,),
            "handler": HandlerTarget(f"{module}:handle", "auto", (str(tmp_path),)),
            "ledger": ledger_at(str(place)),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "trigger": TRIGGER,
            "retry_delays": "1s",
            "mode": mode,
            "until_idle_s": 0.5,
        }
        consume(ConsumeSettings(**(values | changes)), lambda: spark)

    def handled(group: str) -> list[tuple[str, int, str]]:
        """Broker, offset and key of each message that is acknowledged."""
        text = (
            "SELECT broker_name, queue_offset, keys[1] AS key FROM deliveries "
            f"WHERE consumer_group = '{group}' AND verdict = 'ACK' ORDER BY queue_offset, broker_name"
        )
        return [tuple(row.values()) for row in LedgerReader(place).sql(text).to_pylist()]

    def named(*bodies: str, broker: str = "broker-a", first: int = 0) -> list[tuple[str, int, str]]:
        return [(broker, first + number, body.replace(" ", "-")) for number, body in enumerate(bodies)]

    with ForcedPromotion(tmp_path / "brokers") as brokers:
        handle_all(brokers.master, "behind")
        for group in ("ahead", "moved"):
            handle_all(brokers.master, group)
        brokers.lose(3)
        for group in ("ahead", "moved"):
            handle_all(brokers.master, group)
        brokers.promote()
        send(brokers.slave, ["new 0", "fails once"])
        said = rf"topic {TOPIC}, broker broker-a, queue 0: truncated log: offsets \[2, 5\).*-loss record"
        lost: dict[str, Any] = {"checkpoint": tmp_path / "lost"}
        record: dict[str, Any] = {"on_data_loss": "record"}
        for changes in ({}, lost):
            with pytest.raises(LakeMQError, match=said):
                handle_all(brokers.slave, "ahead", **changes)
        before = named("both 0", "both 1", "lost 0", "lost 1", "lost 2")
        assert handled("ahead") == before
        stumbles = HandlerTarget(f"{module}:stumble", "auto", (str(tmp_path),))
        handle_all(brokers.slave, "ahead", handler=stumbles, until_idle_s=10.0, **record)
        handle_all(brokers.slave, "moved", checkpoint=tmp_path / "moved", **record)
        again = named("new 0", "fails once", broker="broker-a@65", first=2)
        for group in ("ahead", "moved"):
            assert handled(group) == sorted(before + again, key=lambda row: (row[1], row[0]))
        send(brokers.slave, ["new 2", "new 3", "new 4"])
        again += named("new 2", broker="broker-a@65", first=4)
        after = named("new 3", "new 4", first=5)
        handle_all(brokers.slave, "ahead", checkpoint=tmp_path / "another")  # it knows of the range
        handle_all(brokers.slave, "moved", checkpoint=tmp_path / "moved")
        for group in ("ahead", "moved"):
            assert handled(group) == sorted(before + again + after, key=lambda row: (row[1], row[0]))
        everything = named("both 0", "both 1", "new 0", "fails once", "new 2", "new 3", "new 4")
        for group in ("behind", "new"):
            handle_all(brokers.slave, group)
            assert handled(group) == everything
        handle_all(brokers.slave, "behind", checkpoint=tmp_path / "behind")
        assert handled("behind") == everything
    reader = LedgerReader(place)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "parked_messages"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    columns = "consumer_group, from_offset, to_offset, epoch_before, epoch, named"
    text = f"SELECT {columns} FROM truncated_ranges ORDER BY 1"
    ranges = [tuple(row.values()) for row in reader.sql(text).to_pylist()]
    assert ranges == [(group, 2, 4, 1, 65, "broker-a@65") for group in ("ahead", "moved")]
    assert reader.sql("SELECT * FROM data_losses").num_rows == 0
    text = (
        "SELECT consumer_group, broker_name, reached_offset, lag FROM group_progress "
        f"WHERE topic = '{TOPIC}' AND consumer_group IN ('ahead', 'new') ORDER BY 1, 2"
    )
    progress = [tuple(row.values()) for row in reader.sql(text).to_pylist()]
    assert progress == [
        ("ahead", "broker-a", 7, 0),
        ("ahead", "broker-a@65", 5, 0),
        ("new", "broker-a", 7, 0),
    ]
