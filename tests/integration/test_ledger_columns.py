"""Ledgers of another version: one column behind this one, and one ahead.

Contract: a job adds the columns that its tables lack before it writes, appends to tables that have more and
leaves those columns null in its rows, and goes on where the group was; no row and no value is lost.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import NEVER, append_arrow_once, append_once, newest_batch
from delta_tables.ledger import ledger_at
from delta_tables.ledger.location import LOG_RETENTION
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.views import TABLES, VIEWS, register_views
from jobs.archive import ArchiveSettings, archive
from jobs.consume import WRITTEN, consume
from tests.support.broker_process import BrokerProcess
from tests.support.golden import GOLDEN
from tests.support.golden_group import BROKER_ARGUMENTS, FIRST, TOPIC, deliveries, group_settings, post
from tests.support.ledger_rows import delivery

LACKING = {
    "deliveries": "worker",
    "dead_letters": "worker",
    "consumer_offsets": "recorded_ms",
    "data_losses": "reason",
    "messages": "flag",
    "replays": "operator",
    "sent_messages": "sent_tags",
    "written_rows": "table_name",
    "refused_sends": "error",
    "discarded_sends": "reason",
    "skipped_messages": "reason",
    "truncated_ranges": "epoch_before",
}


def one_behind(ledger: PathLedger) -> None:
    """Makes the tables those of a version that did not know one column of each."""
    ledger.create(*TABLES)
    for table in TABLES:
        log = ledger.path(table) / "_delta_log"
        for checksum in log.glob("*.crc"):
            checksum.unlink()
        for commit in log.glob("*.json"):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for action in actions:
                if "metaData" in action:
                    schema = json.loads(action["metaData"]["schemaString"])
                    schema["fields"] = [f for f in schema["fields"] if f["name"] != LACKING[table.name]]
                    action["metaData"]["schemaString"] = json.dumps(schema)
            commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
        assert LACKING[table.name] not in names_of(ledger, table.name)


def one_ahead(ledger: PathLedger) -> None:
    """Makes the tables those of a version that writes one column more."""
    ledger.create(*TABLES)
    for table in TABLES:
        ledger.open(table).alter.add_columns([Field("note", PrimitiveType("string"))])
    noted = pa.table({"consumer_group": ["later"], "note": ["kept"]})
    write_deltalake(ledger.open(DELIVERIES), noted, mode="append", schema_mode="merge")


def names_of(ledger: PathLedger, name: str) -> list[str]:
    (table,) = (table for table in TABLES if table.name == name)
    return [field.name for field in ledger.open(table).schema().fields]


@pytest.mark.parametrize(
    "change", [one_behind, pytest.param(one_ahead, marks=pytest.mark.nightly)], ids=["behind", "ahead"]
)
def test_a_group_and_an_archive_go_on_over_another_versions_columns(
    spark: SparkSession,
    start_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    change: Callable[[PathLedger], None],
) -> None:
    with tarfile.open(GOLDEN / "0.1.0" / "group.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    home = tmp_path / "group"
    broker = start_broker("group", arguments=BROKER_ARGUMENTS)
    settings = group_settings(home, broker.endpoint)
    assert isinstance(settings.ledger, PathLedger)
    before = deliveries(home)
    change(settings.ledger)
    reader = LedgerReader(home / "ledger")
    for view in VIEWS:  # before any job of this version: what is not there reads as null
        assert reader.sql(f"SELECT count(*) AS n FROM {view}").num_rows == 1
    register_views(spark, settings.ledger)
    assert spark.table("deliveries").where("worker IS NOT NULL AND consumer_group = 'shop'").count() in (
        0 if change is one_behind else len(before),
    )

    post(broker.client(), range(FIRST, 2 * FIRST))
    consume(settings, lambda: spark)
    archive(
        ArchiveSettings((TOPIC,), settings.ledger, endpoint=broker.endpoint, trigger="availableNow"),
        lambda: spark,
    )

    after = [row for row in deliveries(home) if row["consumer_group"] == "shop"]
    assert [row for row in after if row in before] == before
    assert len(after) == 2 * len(before)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    counted = "SELECT count(*) AS n FROM {}"
    assert reader.sql(counted.format("dead_letters")).to_pylist() == [{"n": 8}]
    assert reader.sql(counted.format("messages")).to_pylist() == [{"n": 2 * FIRST}]
    for name in ("deliveries", "dead_letters", "consumer_offsets", "messages"):
        written = reader.sql(f"SELECT {LACKING[name]} FROM {name} WHERE {LACKING[name]} IS NOT NULL")
        assert written.num_rows >= (2 * FIRST if name == "messages" else 1), name
    if change is one_ahead:
        noted = reader.sql("SELECT note FROM deliveries WHERE note IS NOT NULL")
        assert noted.to_pylist() == [{"note": "kept"}]
        for table in TABLES:
            assert "note" in names_of(settings.ledger, table.name)


def test_a_catalog_shows_what_tables_and_columns_mean_and_holds_rows_to_their_checks(
    spark: SparkSession,
) -> None:
    schema = "spark_catalog.described"
    spark.sql(f"CREATE SCHEMA {schema}")
    ledger = ledger_at(schema)
    try:
        older = ", ".join(f"{column.name} {column.ddl}" for column in CONSUMER_OFFSETS.columns)
        spark.sql(f"CREATE TABLE {ledger.qualified(CONSUMER_OFFSETS)} ({older}) USING delta")
        spark.sql(f"ALTER TABLE {ledger.qualified(CONSUMER_OFFSETS)} ALTER COLUMN lag COMMENT 'own'")
        ledger.create_for(WRITTEN, TABLES, spark)
        for table in WRITTEN:
            name = ledger.qualified(table)
            fields = spark.table(name).schema.fields
            wanted = {column.name: column.comment for column in table.columns}
            if table is CONSUMER_OFFSETS:
                wanted["lag"] = "own"
            assert {field.name: field.metadata.get("comment") for field in fields} == wanted
            assert spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["description"] == table.comment
            properties = {
                row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
            }
            assert properties["lakemq.schema_version"] == ".".join(map(str, table.version))
            assert properties["delta.logRetentionDuration"] == ledger.properties(table)[LOG_RETENTION]
            assert table.constraints.items() <= properties.items()
        versions = [ledger.version(spark, table) for table in WRITTEN]
        ledger.create_for(WRITTEN, TABLES, spark)
        assert [ledger.version(spark, table) for table in WRITTEN] == versions, "once"

        def append(**fields: Any) -> bool:
            made = pa.Table.from_pylist([delivery(0) | fields], schema=DELIVERIES.arrow_schema)
            outcomes = spark.createDataFrame(made)
            return append_once(outcomes, ledger, DELIVERIES, app_id="a", version=0)

        for wrong in ({"attempt": 0}, {"queue_offset": -1}, {"verdict": "LATER"}, {"verdict": None}):
            with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
                append(**wrong)
        assert append(verdict="PARKED", started_at=None)
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_tables_in_a_catalog_get_what_they_lack_and_take_a_version_of_rows_once(spark: SparkSession) -> None:
    schema = "spark_catalog.other_versions"
    spark.sql(f"CREATE SCHEMA {schema}")
    ledger = ledger_at(schema)
    try:
        for table in (DELIVERIES, CONSUMER_OFFSETS):
            older = ", ".join(
                f"{column.name} {column.ddl}"
                for column in table.columns
                if column.name != LACKING[table.name]
            )
            name = ledger.qualified(table)
            spark.sql(f"CREATE TABLE {name} ({older}, note STRING) USING delta")
            spark.sql(f"INSERT INTO {name} (consumer_group, note) VALUES ('later', 'kept')")
        ledger.create_for(WRITTEN, TABLES, spark)
        ledger.create_for(WRITTEN, TABLES, spark)
        made = pa.Table.from_pylist([delivery(0, worker="w")], schema=DELIVERIES.arrow_schema)
        session = spark.newSession()
        outcomes = session.createDataFrame(made)
        progress = rows(
            [QueueProgress("orders", "broker-a", 0, 0, 5, None)],
            consumer_group="g",
            subscription="*",
            query_id="q",
            batch_id=0,
            recorded_at=datetime(2026, 11, 21, tzinfo=UTC),
        )
        assert append_once(outcomes, ledger, DELIVERIES, app_id="a", version=0)
        assert append_arrow_once(progress, ledger, CONSUMER_OFFSETS, app_id="a", version=0, spark=session)
        found = ledger.read(spark, DELIVERIES).select("consumer_group", "worker", "note").collect()
        assert sorted(map(tuple, found)) == [("g", "w", None), ("later", None, "kept")]
        found = ledger.read(spark, CONSUMER_OFFSETS).select("consumer_group", "next_offset", "note").collect()
        assert sorted(map(tuple, found)) == [("g", 5, None), ("later", None, "kept")]
        assert "recorded_ms" in ledger.read(spark, CONSUMER_OFFSETS).columns

        def append(version: int) -> tuple[bool, bool]:
            return (
                append_once(outcomes, ledger, DELIVERIES, app_id="a", version=version),
                append_arrow_once(
                    progress, ledger, CONSUMER_OFFSETS, app_id="a", version=version, spark=session
                ),
            )

        def counts() -> list[int]:
            return [ledger.read(spark, table).count() for table in (DELIVERIES, CONSUMER_OFFSETS)]

        assert append(0) == (False, False), "the tables have this version"
        assert counts() == [2, 2]
        assert append(1) == (True, True)
        assert counts() == [3, 3]
        newest = [newest_batch(ledger, CONSUMER_OFFSETS, query_id=query, spark=spark) for query in ("q", "p")]
        assert newest == [0, NEVER]
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")
