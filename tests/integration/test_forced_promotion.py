"""What readers are told when a promotion by force gives queue offsets a second time.

Contract: a query whose position lies past the common point is told "truncated log" with topic, queue and
range and goes on, where it may, at the first message of the new epoch: none is skipped, none is taken for
another. One that had not come so far is told nothing, and the way by which a store is read makes no
difference. A group past the common point is refused with the range, with its checkpoint or without, whatever
its --on-data-loss says, since its ledger has those offsets as other messages'; another group handles what is
there now.
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

SCHEMA = StructType([StructField("body", StringType())])


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


def test_a_group_past_the_common_point_is_refused_and_one_that_was_behind_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    module = f"handlers_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text("def handle(message):\n    pass\n")
    place = tmp_path / "ledger"

    def handle_all(broker: BrokerProcess, group: str, **changes: Any) -> None:
        values: dict[str, Any] = {
            "group": group,
            "topics": (TOPIC,),
            "handler": HandlerTarget(f"{module}:handle", "auto", (str(tmp_path),)),
            "ledger": ledger_at(str(place)),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "trigger": "100 milliseconds",
            "until_idle_s": 0.5,
        }
        consume(ConsumeSettings(**(values | changes)), lambda: spark)

    def handled(group: str) -> list[int]:
        text = f"SELECT queue_offset FROM deliveries WHERE consumer_group = '{group}' ORDER BY 1"
        return [row["queue_offset"] for row in LedgerReader(place).sql(text).to_pylist()]

    with ForcedPromotion(tmp_path / "brokers") as brokers:
        handle_all(brokers.master, "behind")
        handle_all(brokers.master, "ahead")
        brokers.lose(3)
        handle_all(brokers.master, "ahead")
        brokers.promote()
        send(brokers.slave, [f"new {number}" for number in range(6)])
        said = (
            rf"topic {TOPIC}, broker broker-a, queue 0: truncated log: offsets \[2, 5\).*[Uu]se another group"
        )
        lost: dict[str, Any] = {"checkpoint": tmp_path / "another"}
        record: dict[str, Any] = {"on_data_loss": "record"}
        for changes in ({}, record, record, {}, lost, {**lost, **record}):
            with pytest.raises(LakeMQError, match=said):
                handle_all(brokers.slave, "ahead", **changes)
        assert handled("ahead") == [0, 1, 2, 3, 4]
        handle_all(brokers.slave, "behind")
        assert handled("behind") == [0, 1, 2, 3, 4, 5, 6, 7]
        handle_all(brokers.slave, "new")
        assert handled("new") == [0, 1, 2, 3, 4, 5, 6, 7]
        handle_all(brokers.slave, "behind", checkpoint=tmp_path / "lost")
    assert LedgerReader(place).sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    assert LedgerReader(place).sql("SELECT * FROM delivery_gaps").num_rows == 0
    text = "SELECT DISTINCT consumer_group, epoch FROM consumer_offsets ORDER BY 1, 2"
    epochs = [tuple(row.values()) for row in LedgerReader(place).sql(text).to_pylist()]
    assert epochs == [("ahead", 1), ("behind", 1), ("behind", 65), ("new", 65)]
