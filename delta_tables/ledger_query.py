"""One query of a ledger, answered by whichever engine is nearer.

Owns the choice: `deltalake` for a ledger on a path (milliseconds, no Spark job on a cold JVM), Spark for
one in a catalog.

Invariants: a query leaves nothing behind in the session, and costs the analysis of the tables and views it
names, not of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import named_in, without_comments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def select(ledger: LedgerLocation, text: str, spark: SparkSession | None = None) -> list[tuple[Any, ...]]:
    """Runs a SELECT over the ledger's tables and views; a ledger in a catalog needs the session.

    Returns:
        The rows as tuples; times are in UTC and say so.
    """
    if isinstance(ledger, PathLedger):
        from delta_tables.ledger_reader import LedgerReader

        result = LedgerReader(ledger.directory).sql(text)
    else:
        assert spark is not None, "a ledger in a catalog is read through Spark"
        result = spark.sql(with_views(ledger, text)).toArrow()
    return [tuple(row.values()) for row in result.to_pylist()]


def with_views(ledger: LedgerLocation, text: str) -> str:
    """Puts the tables and views that a SELECT names before it, as common table expressions."""
    tables, views = named_in(text)
    parts = [f"{table.name} AS (SELECT * FROM {ledger.qualified(table)})" for table in tables]
    parts += [f"{view} AS ({without_comments(view)})" for view in views]
    return f"WITH {', '.join(parts)} {text}" if parts else text
