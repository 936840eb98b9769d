"""One question to a ledger, answered by whichever engine is nearer.

Owns the choice: `deltalake` for a ledger on a path (milliseconds, no Spark job on a cold JVM), Spark for
one in a catalog. Called by the jobs where they decide something from the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_tables.location import LedgerLocation
from delta_tables.views import register_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask(ledger: LedgerLocation, text: str, spark: SparkSession) -> list[tuple[Any, ...]]:
    """Runs a SELECT over the ledger's tables and views.

    Returns:
        The rows as tuples; times are in UTC and say so.
    """
    if ledger.directory is None:
        register_views(spark, ledger)
        result = spark.sql(text).toArrow()
    else:
        from delta_tables.query import Ledger

        result = Ledger(ledger.directory).sql(text)
    return [tuple(row.values()) for row in result.to_pylist()]
