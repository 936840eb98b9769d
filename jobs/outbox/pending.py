"""Messages that verdicts send, and rows that they write, which wait; chosen by SQL.

Owns the query.

Invariants: only the group's own are found, one row for each; none that was sent, written or given up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.opened_ledger import OpenedLedger
from jobs.dlq.condition import check_condition
from store_native import validate_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = ("topic", "broker_name", "queue_id", "queue_offset", "attempt", "number")
NAMED = (*KEY, "message_id", "sent_topic", "sent_message_id", "sent_table")
SHOWN = (*NAMED, "sent_keys", "row_json", "decided_at", "code", "error", "refused_at")

_OLDEST = "SELECT min(decided_at) AS oldest FROM pending_sends WHERE consumer_group = '{group}'"
_NULL = "nullif(message_id, message_id)"
"""Null, which the engine does not work out beforehand: it would pass over a condition that comes to NULL."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_CHOSEN = """\
WITH each_message AS (
  SELECT topic, broker_name, queue_id, queue_offset, attempt, message_id, finished_at AS decided_at,
    {each_sent}
  FROM deliveries WHERE consumer_group = '{group}' AND sends > 0 AND finished_at >= TIMESTAMP '{oldest}'
),
each_row AS (
  SELECT topic, broker_name, queue_id, queue_offset, attempt, message_id, finished_at AS decided_at, keys,
    coalesce(sends, 0) AS before, {each_kept}
  FROM deliveries WHERE consumer_group = '{group}' AND writes > 0 AND finished_at >= TIMESTAMP '{oldest}'
),
each_one AS (
  SELECT {place}, place + 1 AS number, message_id, decided_at, sent['topic'] AS sent_topic,
    sent['message_id'] AS sent_message_id, sent['keys'] AS sent_keys,
    sent['tags'] AS sent_tags, {null} AS sent_table, {null} AS row_json
  FROM each_message
  UNION ALL
  SELECT {place}, before + place + 1, message_id, decided_at, {null}, {null},
    CASE WHEN {null} = '' THEN keys END, {null},
    kept['table_name'], kept['row_json']
  FROM each_row
),
done AS (
  SELECT {key} FROM sent_messages WHERE consumer_group = '{group}'
  UNION ALL
  SELECT {key} FROM written_rows WHERE consumer_group = '{group}'
  UNION ALL
  SELECT {key} FROM discarded_sends WHERE consumer_group = '{group}'
),
refused AS (
  SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY refused_at DESC) AS newest
  FROM refused_sends WHERE consumer_group = '{group}'
),
waiting AS (
  SELECT {of_each}, each_one.message_id, each_one.sent_topic, each_one.sent_message_id, each_one.sent_keys,
    each_one.sent_tags, each_one.sent_table, each_one.row_json, each_one.decided_at, refused.code,
    refused.error, refused.refused_at
  FROM each_one
  LEFT JOIN done ON {is_done}
  LEFT JOIN refused ON {is_refused} AND refused.newest = 1
  WHERE done.number IS NULL
)
SELECT {columns} FROM waiting AS waiting WHERE (
{predicate}
)
ORDER BY decided_at, {key}"""


class PendingSends:
    """What verdicts of a group send or write, that waits and fits a predicate.

    Args:
        ledger: A ledger's directory, or `catalog.schema`.
        group: The group.
        predicate: SQL over the columns of `SHOWN`, and sent_tags.
        spark: A session that reaches a ledger in a catalog.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when there is no ledger, or the predicate is no SQL,
            or has another result each time.
    """

    def __init__(self, ledger: str, group: str, predicate: str, *, spark: SparkSession | None = None) -> None:
        validate_group(group)
        self.ledger = OpenedLedger(ledger, spark)
        check_condition(predicate)
        self.group = group
        self.predicate = predicate

    def rows(self) -> pa.Table:
        """What waits now, in the order of their verdicts.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the predicate is no SQL.
        """
        tables = self.ledger.reader.snapshot()
        # The messages of all that the group ever acknowledged are in the table, whole.
        ((oldest,),) = (row.values() for row in tables.sql(_OLDEST.format(group=self.group)).to_pylist())
        return tables.sql(
            _CHOSEN.format(
                group=self.group,
                oldest=(oldest or datetime.now(UTC)).strftime(_TIME),
                predicate=self.predicate,
                key=", ".join(KEY),
                place=", ".join(KEY[:-1]),
                each_sent=tables.exploded("outbox", "sends", "sent"),
                each_kept=tables.exploded("table_rows", "writes", "kept"),
                null=_NULL,
                of_each=", ".join(f"each_one.{name}" for name in KEY),
                is_done=_same("done"),
                is_refused=_same("refused"),
                columns=", ".join(SHOWN),
            )
        )


def _same(other: str) -> str:
    return " AND ".join(f"{other}.{name} = each_one.{name}" for name in KEY)
