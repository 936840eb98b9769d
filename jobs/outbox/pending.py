"""Messages that verdicts send, and rows that they write, which wait; chosen by SQL.

Owns the query.

Invariants: only the group's own are found, one row for each; none that was sent, written or given up.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from delta_tables.ledger import ledger_at
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from jobs.dlq.condition import check_condition
from store_native import validate_group

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
    unnest(range(1, CAST(sends AS BIGINT) + 1)) AS number, unnest(outbox) AS sent
  FROM deliveries WHERE consumer_group = '{group}' AND sends > 0 AND finished_at >= TIMESTAMP '{oldest}'
),
each_row AS (
  SELECT topic, broker_name, queue_id, queue_offset, attempt, message_id, finished_at AS decided_at,
    unnest(range(coalesce(CAST(sends AS BIGINT), 0) + 1, coalesce(CAST(sends AS BIGINT), 0) + writes + 1))
      AS number,
    unnest(table_rows) AS kept
  FROM deliveries WHERE consumer_group = '{group}' AND writes > 0 AND finished_at >= TIMESTAMP '{oldest}'
),
each_one AS (
  SELECT {key}, message_id, decided_at, sent['topic'] AS sent_topic, sent['message_id'] AS sent_message_id,
    sent['keys'] AS sent_keys, sent['tags'] AS sent_tags, {null} AS sent_table, {null} AS row_json
  FROM each_message
  UNION ALL
  SELECT {key}, message_id, decided_at, {null}, {null}, CASE WHEN {null} = '' THEN make_array('') END, {null},
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
SELECT {columns} FROM waiting WHERE (
{predicate}
)
ORDER BY decided_at, {key}"""


class PendingSends:
    """What verdicts of a group send or write, that waits and fits a predicate.

    Args:
        ledger: A ledger's directory.
        group: The group.
        predicate: SQL over the columns of `SHOWN`, and sent_tags.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when there is no ledger, it is a catalog's, or the
            predicate is no SQL, or has another result each time.
    """

    def __init__(self, ledger: str, group: str, predicate: str) -> None:
        validate_group(group)
        location = ledger_at(ledger)
        self._reader = LedgerReader(ledger)
        assert isinstance(location, PathLedger), "the reader refuses a catalog"
        check_condition(predicate)
        self.location = location
        self.group = group
        self.predicate = predicate

    def rows(self) -> pa.Table:
        """What waits now, in the order of their verdicts.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the predicate is no SQL.
        """
        tables = self._reader.snapshot()
        # The messages of all that the group ever acknowledged are in the table, whole.
        ((oldest,),) = (row.values() for row in tables.sql(_OLDEST.format(group=self.group)).to_pylist())
        return tables.sql(
            _CHOSEN.format(
                group=self.group,
                oldest=(oldest or datetime.now(UTC)).strftime(_TIME),
                predicate=self.predicate,
                key=", ".join(KEY),
                null=_NULL,
                of_each=", ".join(f"each_one.{name}" for name in KEY),
                is_done=_same("done"),
                is_refused=_same("refused"),
                columns=", ".join(SHOWN),
            )
        )


def _same(other: str) -> str:
    return " AND ".join(f"{other}.{name} = each_one.{name}" for name in KEY)
