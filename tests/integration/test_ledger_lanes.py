"""What the ledger says of an orderly group's lanes: the same on a path and in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.kept_rows import KeptRows, kept_rows
from delta_tables.ledger import ledger_at
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from delta_tables.maintenance import maintain_in_catalog
from jobs.group.orderly import ledger_lanes
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.waiting import LaneRow
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import START, append, delivery

KEY = [("LMQ_SHARDING_KEY", "it's"), ("colour", "red")]
OF_KEY, OF_QUEUE = Lane("orders", "broker-a", 0, "it's"), Lane("orders", "broker-a", 0, None)


def parked(offset: int, attempt: int = 1, **fields: Any) -> dict[str, Any]:
    body = {"source_broker_name": "broker-a", "body": b"b%d" % offset, "flag": 7, "started_at": None}
    return delivery(offset, attempt, "PARKED", **(body | fields))


ROWS = [
    delivery(0, verdict="RETRY", properties=KEY),
    parked(1, properties=KEY),
    parked(2, properties=[("colour", "blue")]),
    delivery(3, verdict="RETRY"),
    parked(3, attempt=2, source_queue_offset=40, properties=[("RETRY_TOPIC", "orders")]),
    parked(4),
    delivery(4, batch_id=1),
    delivery(4, consumer_group="other"),
    delivery(5, verdict="RETRY", consumer_group="other", batch_id=1),
    delivery(7, verdict="DEAD", consumer_group="dead"),
]


@pytest.fixture(params=["path", "catalog"])
def ledger(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[LedgerLocation]:
    if request.param == "path":
        path = ledger_at(str(tmp_path))
        assert isinstance(path, PathLedger)
        append(path, DELIVERIES, ROWS)
        yield path
        return
    spark.sql("CREATE SCHEMA lanes_ledger")
    catalog = ledger_at("spark_catalog.lanes_ledger")
    catalog.create(DELIVERIES, spark=spark)
    rows = spark.createDataFrame(pa.Table.from_pylist(ROWS, schema=DELIVERIES.arrow_schema))
    rows.write.format("delta").mode("append").saveAsTable(catalog.qualified(DELIVERIES))
    yield catalog
    spark.sql("DROP SCHEMA lanes_ledger CASCADE")


def test_lanes_are_read_from_the_ledger(spark: SparkSession, ledger: LedgerLocation) -> None:
    waiting = ledger_lanes.waiting_rows(ledger, "g", spark)
    assert sorted(waiting, key=lambda row: row.attempt) == [
        LaneRow(OF_KEY, Attempt(0, 1), "RETRY"),
        LaneRow(OF_KEY, Attempt(1, 1), "PARKED"),
        LaneRow(OF_QUEUE, Attempt(2, 1), "PARKED"),
        LaneRow(OF_QUEUE, Attempt(3, 2), "PARKED"),
    ]
    batch = ledger_lanes.rows_of_batch(ledger, "g", "q", 1, START, spark)
    assert batch == [LaneRow(OF_QUEUE, Attempt(4, 1), "ACK")]
    assert len(ledger_lanes.rows_of_batch(ledger, "g", "q", 0, START, spark)) == 6
    assert ledger_lanes.rows_of_batch(ledger, "g", "q", 0, START + timedelta(hours=1), spark) == []

    chosen = {OF_KEY: [Attempt(1, 1)], OF_QUEUE: [Attempt(3, 2)]}
    messages = ledger_lanes.parked_batch(ledger, "g", chosen, spark).to_pylist()
    assert [(m["topic"], m["queue_offset"], m["reconsume_times"], m["body"]) for m in messages] == [
        ("orders", 1, 0, b"b1"),
        ("%RETRY%g", 40, 1, b"b3"),
    ]
    assert (messages[0]["properties"], messages[0]["keys"], messages[0]["flag"]) == (KEY, ["K1", "all"], 7)
    assert ledger_lanes.parked_batch(ledger, "g", {}, spark).num_rows == 0

    ledger_lanes.refuse_parked(ledger, "other", spark)
    with pytest.raises(InvalidRequest, match="3 messages of group g are parked"):
        ledger_lanes.refuse_parked(ledger, "g", spark)


def test_retention_keeps_what_messages_wait_with(spark: SparkSession, ledger: LedgerLocation) -> None:
    """All of a group whose lanes wait; of others the newest batch, and what failures wait with."""
    since = {"g": ROWS[0]["finished_at"], "other": ROWS[-2]["finished_at"], "dead": ROWS[-1]["finished_at"]}
    assert kept_rows(ledger, spark) == KeptRows(since, since)
    if isinstance(ledger, CatalogLedger):
        maintain_in_catalog(spark, ledger, keep_days=1, tables=[DELIVERIES])
        left = select(ledger, "SELECT consumer_group, queue_offset FROM deliveries ORDER BY 1, 2", spark)
        assert left == [("dead", 7), *(("g", n) for n in (0, 1, 2, 3, 3, 4, 4)), ("other", 5)]
