"""Small files are put together under a running group, and nobody but the files notices.

Contract: appends of a group stay blind and are there once, a driver that lost its place still gets nothing
in, streams over the table read each row once, and the table's small files stay few.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger.compaction import FileSize
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from jobs.group.fence import GroupFence
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import delivery

BATCHES = 12
MOST = 4
"""Small files a table may have here."""


class Lease:
    """A lease that is held."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def confirm(self) -> None:
        """It is ours."""


def fence(spark: SparkSession, ledger: LedgerLocation, epoch: int) -> GroupFence:
    session = spark.newSession()
    session.conf.set(
        "spark.databricks.delta.autoCompact.minNumFiles", str(MOST + 1)
    )  # on a path it is not asked
    return GroupFence(session, ledger, DELIVERIES, "g", cast(Any, Lease(epoch)))


def log_of(directory: Path) -> list[dict[str, Any]]:
    """What the commits of a table say of themselves."""
    paths = sorted((directory / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [action["commitInfo"] for action in actions if "commitInfo" in action]


@pytest.fixture(params=["path", pytest.param("catalog", marks=pytest.mark.nightly)])
def ledger(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LedgerLocation:
    """An empty ledger whose tables may have few small files."""
    location: LedgerLocation
    if request.param == "path":
        location = PathLedger(tmp_path / "ledger", file_sizes=(FileSize(1 << 20, MOST),))
    else:
        spark.sql("CREATE SCHEMA small_files")
        location = ledger_at("spark_catalog.small_files")
    location.create(DELIVERIES, spark=spark)
    return location


def directory_of(spark: SparkSession, ledger: LedgerLocation) -> Path:
    (detail,) = spark.sql(f"DESCRIBE DETAIL {ledger.qualified(DELIVERIES)}").collect()
    return Path(detail["location"].removeprefix("file:"))


def test_appends_beside_compaction_are_there_once_and_streams_read_them_once(
    spark: SparkSession, ledger: LedgerLocation, tmp_path: Path
) -> None:
    seen: list[int] = []

    def note(rows: DataFrame, batch_id: int) -> None:
        seen.extend(row.queue_offset for row in rows.select("queue_offset").collect())

    stream = (
        ledger.read_stream(spark, DELIVERIES, {"startingVersion": "0"})
        .where("consumer_group = 'g'")
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        older, driver = fence(spark, ledger, 1), fence(spark, ledger, 2)
        older.take()
        driver.take()
        for batch_id in range(BATCHES):
            row = delivery(batch_id, batch_id=batch_id)
            rows = driver.frame([tuple(row.get(name) for name in DELIVERIES.column_names)])
            driver.append(rows, batch_id)
            for late in (driver, older):
                with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
                    late.append(rows, batch_id)
            if batch_id == MOST:
                stream.processAllAvailable()  # it goes on over what is replaced from here on, and in between
        stream.processAllAvailable()
    finally:
        stream.stop()
    assert seen == list(range(BATCHES))
    there = select(ledger, "SELECT queue_offset FROM deliveries ORDER BY 1", spark)
    assert there == [(offset,) for offset in range(BATCHES)]
    (detail,) = spark.sql(f"DESCRIBE DETAIL {ledger.qualified(DELIVERIES)}").collect()
    assert detail["numFiles"] <= MOST + 1
    commits = log_of(directory_of(spark, ledger))
    appends = [commit for commit in commits if commit["operation"] == "WRITE"]
    by_spark = [commit for commit in appends if commit["engineInfo"].startswith("Apache-Spark")]
    assert len(by_spark) >= BATCHES
    assert all(commit["isBlindAppend"] for commit in by_spark)
    assert sum(commit["operation"] == "OPTIMIZE" for commit in commits) >= 2
