"""The rows for one table that a batch of the stream holds.

Owns the cut of them out of rows of `deliveries`, and the lookups in `written_rows` and `discarded_sends`.

Invariants: a batch of the group job was written to a table as a whole or not at all; so is its record. What
is looked up is looked up before anything is written: an append that read the table would conflict with every
other group's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERY_KEY
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.outbox.group_batches import GroupBatch

_NUMBERED = (*DELIVERY_KEY[1:], "number")
_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT, number INT"


class BatchRows:
    """The rows for one table.

    Args:
        spark: the session, for a ledger in a catalog.
        ledger: where the tables are.
        group: the group.
        table: the name of the table.
        rows: rows of `deliveries`, all of the group.
    """

    def __init__(
        self, spark: SparkSession, ledger: LedgerLocation, group: str, table: str, rows: DataFrame
    ) -> None:
        self._spark = spark
        self._ledger = ledger
        self._group = group
        self._table = table
        named = ("message_id", "query_id", "batch_id", "finished_at")
        self.all = each_row(rows, *named).where(F.col("table_name") == table)
        """Each of them, with its message and the batch of the group job."""

    def waiting(self) -> DataFrame:
        """Those that nobody has given up by now."""
        of_group = f"consumer_group = '{self._group}'"
        text = f"SELECT DISTINCT {', '.join(_NUMBERED)} FROM discarded_sends WHERE {of_group}"
        given_up = select(self._ledger, text, self._spark)
        if not given_up:
            return self.all
        known = self.all.sparkSession.createDataFrame(given_up, _TYPES)
        return self.all.join(F.broadcast(known), [*_NUMBERED], "left_anti")

    def written(self, batches: Collection[GroupBatch]) -> set[GroupBatch]:
        """Which of some batches are recorded as written."""
        if not batches:
            return set()
        queries = ", ".join(f"'{query}'" for query in sorted({query for query, _ in batches}))
        numbers = [number for _, number in batches]
        text = (
            f"SELECT DISTINCT query_id, batch_id FROM {WRITTEN_ROWS.name} "
            f"WHERE consumer_group = '{self._group}' AND table_name = '{self._table}' "
            f"AND query_id IN ({queries}) AND batch_id BETWEEN {min(numbers)} AND {max(numbers)}"
        )
        found: list[tuple[Any, ...]] = select(self._ledger, text, self._spark)
        return {(query, number) for query, number in found} & set(batches)


def each_row(deliveries: DataFrame, *more: str) -> DataFrame:
    """One row for each that rows of `deliveries` write: delivery key, number, table_name, row_json.

    Args:
        deliveries: the rows.
        more: further columns of theirs.
    """
    each = F.posexplode("table_rows").alias("place", "kept")
    number = (F.coalesce("sends", F.lit(0)) + F.col("place") + 1).cast("int").alias("number")
    columns = (*DELIVERY_KEY, *more)
    return deliveries.select(*columns, "sends", each).select(*columns, number, "kept.*")


def of_batch(rows: DataFrame, batch: GroupBatch) -> DataFrame:
    """The rows of one batch of the group job."""
    query, number = batch
    return rows.where((F.col("query_id") == query) & (F.col("batch_id") == number))


def of_batches(rows: DataFrame, batches: Collection[GroupBatch]) -> DataFrame:
    """The rows of several batches of the group job."""
    known = rows.sparkSession.createDataFrame(sorted(batches), "query_id STRING, batch_id BIGINT")
    return rows.join(F.broadcast(known), ["query_id", "batch_id"], "left_semi")
