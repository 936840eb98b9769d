"""Which rows of `deliveries` stay, however old they are: those that an orderly group's lanes wait with.

Owns the question, for maintenance.

Invariants: a parked message that waits keeps its row, and a message whose lane is suspended the attempt that
failed, whether anything is parked behind it yet or not. A row that says PARKED goes no later than that of the
attempt, which is younger: else the message would seem to wait again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import view_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VIEWS = ("parked_messages", "pending_retries")
_OLDEST = """\
SELECT consumer_group, min(waits_since) AS since
FROM (
  SELECT consumer_group, parked_at AS waits_since FROM parked_messages
  UNION ALL
  SELECT consumer_group, failed_at AS waits_since FROM pending_retries
  WHERE suspends_lane OR consumer_group IN (SELECT consumer_group FROM parked_messages)
) AS waiting
GROUP BY consumer_group ORDER BY consumer_group"""


def kept_since(ledger: LedgerLocation, spark: SparkSession | None = None) -> dict[str, datetime]:
    """From when on a group's rows are kept, of the groups whose lanes wait for something.

    Args:
        ledger: a ledger with the table.
        spark: the session, for a ledger in a catalog.
    """
    views = ", ".join(f"{name} AS (\n{view_sql(name)})" for name in _VIEWS)
    if isinstance(ledger, PathLedger):
        import pyarrow as pa
        from deltalake import QueryBuilder

        session = QueryBuilder().register(DELIVERIES.name, ledger.open(DELIVERIES))
        found = pa.table(session.execute(f"WITH {views} {_OLDEST}").read_all())
    else:
        assert spark is not None, "a ledger in a catalog is read through Spark"
        tables = f"{DELIVERIES.name} AS (SELECT * FROM {ledger.qualified(DELIVERIES)})"
        found = spark.sql(f"WITH {tables}, {views} {_OLDEST}").toArrow()
    return {row["consumer_group"]: row["since"] for row in found.to_pylist()}


def others(kept: Mapping[str, datetime], age: str, in_sql: Callable[[datetime], str]) -> str:
    """What a condition on rows to delete adds to spare those of groups since then; empty without any.

    Args:
        kept: from `kept_since`.
        age: the column with a row's time.
        in_sql: how the engine writes a time.
    """
    return "".join(
        f" AND NOT (consumer_group = '{group}' AND {age} >= {in_sql(since)})" for group, since in kept.items()
    )
