"""Which rows stay, however old they are: those that a group's messages wait with, and its newest batch's.

Owns the question, for maintenance.

Invariants: a parked message that waits keeps its row, and a message whose lane is suspended the attempt that
failed, whether anything is parked behind it yet or not. A retry or a dead letter that may not have been sent
yet keeps the row it is made of. The newest batch stays whole: Spark may not have committed it, and by its
rows the next start knows that it was handled. A row goes no later than what came of it, which is younger:
else its message would seem to wait again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DEAD, DELIVERIES, RETRY
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLDEST = """\
SELECT consumer_group, whole, min(waits_since) AS since
FROM (
  SELECT consumer_group, true AS whole, parked_at AS waits_since FROM parked_messages
  UNION ALL
  SELECT consumer_group, true AS whole, failed_at AS waits_since FROM pending_retries
  WHERE suspends_lane OR consumer_group IN (SELECT consumer_group FROM parked_messages)
  UNION ALL
  SELECT rows_of.consumer_group, true AS whole, rows_of.finished_at AS waits_since
  FROM deliveries AS rows_of
  JOIN (
    SELECT consumer_group, query_id, max(batch_id) AS batch_id,
      row_number() OVER (PARTITION BY consumer_group ORDER BY max(finished_at) DESC) AS newest_first
    FROM deliveries
    GROUP BY consumer_group, query_id
  ) AS newest
    ON newest.consumer_group = rows_of.consumer_group
    AND newest.query_id = rows_of.query_id
    AND newest.batch_id = rows_of.batch_id
    AND newest.newest_first = 1
  UNION ALL
  SELECT consumer_group, false AS whole, failed_at AS waits_since FROM pending_retries
  UNION ALL
  SELECT consumer_group, false AS whole, given_up_at AS waits_since FROM pending_dead_letters
) AS waiting
GROUP BY consumer_group, whole ORDER BY consumer_group"""

_FAILED = f" AND (attempt > 1 OR verdict IN ('{RETRY}', '{DEAD}'))"
"""The rows that retries and dead letters are made of, and those that say what came of them."""


@dataclass(frozen=True)
class KeptRows:
    """From when on the rows of which groups stay.

    Attributes:
        whole: of each group all rows: since its newest batch, or since what its lanes wait for.
        failures: of groups with retries or dead letters that may not have been sent: all rows but those of
            messages that were done at their first attempt.
    """

    whole: Mapping[str, datetime] = field(default_factory=dict)
    failures: Mapping[str, datetime] = field(default_factory=dict)

    def spared(self, table: Table, age: str, in_sql: Callable[[datetime], str]) -> str:
        """What a condition on rows to delete adds to spare those that stay; empty without any.

        Args:
            table: whose rows.
            age: the column with a row's time.
            in_sql: how the engine writes a time.
        """
        failed = _FAILED if table is DELIVERIES else ""
        return "".join(
            f" AND NOT (consumer_group = '{group}' AND {age} >= {in_sql(since)}{kind})"
            for kept, kind in ((self.whole, ""), (self.failures, failed))
            for group, since in kept.items()
        )


def kept_rows(ledger: LedgerLocation, spark: SparkSession | None = None) -> KeptRows:
    """Asks which rows stay.

    Args:
        ledger: a ledger with `deliveries`.
        spark: the session, for a ledger in a catalog.
    """
    ledger.create(DEAD_LETTERS, spark=spark)  # a view names it
    oldest = select(ledger, _OLDEST, spark)
    all_since = {group: since for group, whole, since in oldest if whole}
    return KeptRows(all_since, {group: since for group, whole, since in oldest if not whole})
