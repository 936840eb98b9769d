"""Which rows stay, however old they are: those that a group's messages wait with.

Owns the question, for maintenance.

Invariants: a parked message that waits keeps its row, and a message whose lane is suspended the attempt that
failed, whether anything is parked behind it yet or not. A retry or a dead letter that may not have been sent
yet keeps the row it is made of. A row goes no later than what came of it, which is younger: else its message
would seem to wait again.
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
SELECT consumer_group, of_lanes, min(waits_since) AS since
FROM (
  SELECT consumer_group, true AS of_lanes, parked_at AS waits_since FROM parked_messages
  UNION ALL
  SELECT consumer_group, true AS of_lanes, failed_at AS waits_since FROM pending_retries
  WHERE suspends_lane OR consumer_group IN (SELECT consumer_group FROM parked_messages)
  UNION ALL
  SELECT consumer_group, false AS of_lanes, failed_at AS waits_since FROM pending_retries
  UNION ALL
  SELECT consumer_group, false AS of_lanes, given_up_at AS waits_since FROM pending_dead_letters
) AS waiting
GROUP BY consumer_group, of_lanes ORDER BY consumer_group"""

_FAILED = f" AND (attempt > 1 OR verdict IN ('{RETRY}', '{DEAD}'))"
"""The rows that retries and dead letters are made of, and those that say what came of them."""


@dataclass(frozen=True)
class KeptRows:
    """From when on the rows of which groups stay.

    Attributes:
        lanes: of groups whose lanes wait for something: all rows.
        failures: of groups with retries or dead letters that may not have been sent: all rows but those of
            messages that were done at their first attempt.
    """

    lanes: Mapping[str, datetime] = field(default_factory=dict)
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
            for kept, kind in ((self.lanes, ""), (self.failures, failed))
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
    lanes = {group: since for group, of_lanes, since in oldest if of_lanes}
    return KeptRows(lanes, {group: since for group, of_lanes, since in oldest if not of_lanes})
