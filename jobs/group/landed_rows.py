"""Rows of `deliveries` that a stream worked off before: a rebuilt checkpoint repeats none of them.

Owns how they are found and left out.

Invariants: the rows' own keys are looked up before anything is written: an append that read the table would
conflict with every other group's.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERY_KEY
from delta_tables.known_keys import known_rows
from delta_tables.ledger.location import LedgerLocation
from delta_tables.table import Table

_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT"


def without_landed(
    rows: DataFrame, spark: SparkSession, ledger: LedgerLocation, table: Table, group: str
) -> DataFrame:
    """Leaves out the rows of a batch that a table has.

    Args:
        rows: rows of `deliveries`, all of the group.
        spark: the session, for a ledger in a catalog.
        ledger: where the table is.
        table: its key begins with the group, the position and the attempt, by whatever name.
        group: the group.
    """
    attempts = [*DELIVERY_KEY[1:]]
    asked = {tuple(row.values()) for row in rows.select(*attempts).toArrow().to_pylist()}
    landed = landed_among(asked, spark, ledger, table, group)
    if not landed:
        return rows
    known = rows.sparkSession.createDataFrame(sorted(landed), _TYPES)
    return rows.join(F.broadcast(known), attempts, "left_anti").select(*rows.columns)


def landed_among(
    asked: Set[tuple[Any, ...]], spark: SparkSession, ledger: LedgerLocation, table: Table, group: str
) -> Set[tuple[Any, ...]]:
    """Which of some attempts (position and number) a table has; arguments as for `without_landed`."""
    positions = (attempt[:4] for attempt in asked)
    names = table.key[1 : len(DELIVERY_KEY)]
    return asked & known_rows(spark, ledger, table, group, positions, names)
