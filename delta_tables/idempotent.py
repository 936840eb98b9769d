"""Appends that happen once, however often a batch is run.

Owns the use of Delta's transaction identifiers: a commit carries (application, version), and a
commit with a version at or below the one the table knows for that application is left out. Never
breaks: for one application id, versions only grow. The id must belong to one checkpoint, because
batch numbers start anew with a new one and would otherwise swallow its rows. Called by the jobs from
`foreachBatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.location import LedgerLocation
from delta_tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEVER = -1


def append_once(rows: DataFrame, ledger: LedgerLocation, table: Table, *, app_id: str, version: int) -> None:
    """Appends a frame as (app_id, version) in one Spark action; a repeat appends nothing.

    The frame is evaluated even on a repeat Delta only notices while committing, so a caller whose
    frame has effects asks `last_version` first.
    """
    writer = (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app_id)
        .option("txnVersion", str(version))
    )
    if ledger.schema is not None:
        writer.saveAsTable(ledger.qualified(table))
    else:
        writer.save(str(ledger.path(table)))


def append_arrow_once(
    rows: pa.Table,
    ledger: LedgerLocation,
    table: Table,
    *,
    app_id: str,
    version: int,
    spark: SparkSession | None = None,
) -> bool:
    """Appends a small Arrow table as (app_id, version), on a path without a Spark job.

    Returns:
        Whether the rows were appended; False when the table knew this version already.
    """
    if ledger.schema is not None:
        assert spark is not None, "a ledger in a catalog is written through Spark"
        append_once(spark.createDataFrame(rows), ledger, table, app_id=app_id, version=version)
        return True

    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    delta = DeltaTable(str(ledger.path(table)))
    known = delta.transaction_version(app_id)
    if known is not None and known >= version:
        return False
    write_deltalake(
        delta,
        rows,
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )
    return True


def last_version(
    ledger: LedgerLocation, table: Table, *, app_id: str, query_id: str, spark: SparkSession
) -> int:
    """The newest version the table holds for an application, NEVER when none.

    On a path the table's log answers in milliseconds. In a catalog its rows do: an empty batch leaves
    none, but repeating an empty batch has no effect.

    Args:
        ledger: where the table is.
        table: a table with the columns query_id and batch_id.
        app_id: the application id of the writer.
        query_id: the streaming query behind that id.
        spark: the session.
    """
    if ledger.schema is not None:
        newest = (
            ledger.read(spark, table).where(f"query_id = '{query_id}'").selectExpr("max(batch_id)").first()
        )
        return NEVER if newest is None or newest[0] is None else int(newest[0])

    from deltalake import DeltaTable

    version = DeltaTable(str(ledger.path(table))).transaction_version(app_id)
    return NEVER if version is None else int(version)
