"""The ledger's views: state is a view over append-only tables, not an update.

Owns the list of views and their text in `views/*.sql`.

Invariants: the text runs unchanged in Spark SQL and in DataFusion (`deltalake`), so it keeps to what both
know; but for `BY_KEY`, which has a text of its own there (key_index/look_up.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.data_losses import DATA_LOSSES
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.ledger import ledger_at
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.messages import MESSAGES
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.replays import REPLAYS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table
from delta_tables.truncated_ranges import TRUNCATED_RANGES
from delta_tables.written_rows import WRITTEN_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = (
    SKIPPED_MESSAGES,
    *(MESSAGES, DELIVERIES, DEAD_LETTERS, CONSUMER_OFFSETS, DATA_LOSSES, REPLAYS),
    *(SENT_MESSAGES, WRITTEN_ROWS, REFUSED_SENDS, DISCARDED_SENDS),
    TRUNCATED_RANGES,
)
"""In an order in which old rows may go: a skip before the verdict that ended it, else it would hold again."""

BY_KEY = "deliveries_by_key"

VIEWS = (
    BY_KEY,
    "delivery_history",
    "message_trace",
    "group_progress",
    "pending_retries",
    "parked_messages",
    "pending_dead_letters",
    "pending_sends",
    "dead_letter_summary",
    "delivery_gaps",
    "duplicate_deliveries",
)
"""In an order in which each view finds what it is built on."""


_COMMENT = re.compile(r"--[^\n]*")


@cache
def view_sql(name: str) -> str:
    """The SELECT behind a view."""
    return files("delta_tables").joinpath("views", f"{name}.sql").read_text(encoding="utf-8")


def without_comments(name: str) -> str:
    """The same, for a place where a comment would hide what follows."""
    return _COMMENT.sub("", view_sql(name))


def named_in(text: str) -> tuple[list[Table], list[str]]:
    """The tables and views that SQL may need: whose names are in it, and in the views that it names."""
    views: list[str] = []
    named = text
    for view in reversed(VIEWS):  # a view is built on those before it
        if _names(named, view):
            views.insert(0, view)
            named = f"{named} {without_comments(view)}"
    return [table for table in TABLES if _names(named, table.name)], views


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def register_views(spark: SparkSession, ledger: LedgerLocation | str) -> None:
    """Makes the ledger's tables and views known to a Spark session as temporary views.

    Args:
        spark: the session.
        ledger: a directory, `catalog.schema`, or a location; in a catalog its tables must exist.
    """
    location = ledger_at(ledger) if isinstance(ledger, str) else ledger
    if isinstance(location, PathLedger):
        location.create(*TABLES)  # one of a later release than the ledger reads as empty
    register(spark, {table: location.read(spark, table) for table in TABLES}, VIEWS)


def register(spark: SparkSession, stored: Mapping[Table, DataFrame], views: Sequence[str]) -> None:
    """Makes tables, which the session reads as they are stored, and views over them known to it."""
    for table, rows in stored.items():
        _with_all_columns(rows, table).createOrReplaceTempView(table.name)
    for name in views:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {view_sql(name)}")


def _with_all_columns(stored: DataFrame, table: Table) -> DataFrame:
    """The table with null in columns that an earlier version did not write."""
    from pyspark.sql import functions as F

    there = {name.lower() for name in stored.columns}
    lacking = {
        column.name: F.lit(None).cast(column.ddl) for column in table.columns if column.name not in there
    }
    return stored.withColumns(lacking) if lacking else stored
