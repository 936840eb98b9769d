"""Reading a ledger table as a stream, also after its checkpoint was lost.

Owns where such a stream begins. Never breaks: the beginning is decided once per checkpoint and
remembered, since the exactly-once sink takes a repeated batch for the same rows. A stream over a
ledger with history begins at its oldest unfinished row, not at the ledger's first. Called by the retry
and dead_letter jobs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from delta_tables.location import LedgerLocation
from delta_tables.table import Table
from delta_tables.views import register_views
from jobs.checkpoint import StreamCheckpoint


def read_from_start(
    spark: SparkSession,
    ledger: LedgerLocation,
    table: Table,
    checkpoint: StreamCheckpoint,
    *,
    unfinished: str,
) -> DataFrame:
    """A streaming frame over a ledger table.

    Args:
        spark: the session.
        ledger: where the table is.
        table: the table.
        checkpoint: the stream's checkpoint; its start file is written before the stream starts.
        unfinished: SQL over the ledger's views for the time of the oldest row not yet worked off.

    Returns:
        The table's rows in the order of their commits. A row's commit is never older than the row, so
        starting at the commits since the oldest unfinished row leaves none out.
    """

    def decide() -> dict[str, Any]:
        if ledger.read(spark, table).isEmpty():
            return {}
        register_views(spark, ledger)
        oldest = spark.sql(unfinished).head()
        if oldest is None or oldest[0] is None:
            return {"startingVersion": "latest"}
        return {"startingTimestamp": _text(oldest[0])}

    return ledger.read_stream(spark, table, checkpoint.start(decide))


def _text(moment: datetime) -> str:
    # Spark hands over naive datetimes in the driver's local zone; the session's zone is UTC.
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
