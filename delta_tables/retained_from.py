"""From which offset on a queue's deliveries are all kept, where maintenance deletes old ones.

Owns what a group's reports (`consumer_offsets`) say of it: one row per queue, of the query `RETENTION`,
begin and next offset alike, which `delivery_gaps` looks at a queue from. Without it, what was deleted would
count as never delivered where the time that is kept begins: calls end in another order than their messages
have.

Invariants: the row is there before the first delivery goes; one replaces the one before. It is no progress:
a start without a checkpoint does not go on behind it, since what was deleted may have been waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, RETENTION


def question(old: str) -> str:
    """The SELECT that says from where on each queue is kept.

    Args:
        old: The condition on the rows of `deliveries` that will be deleted.
    """
    queue = "consumer_group, topic, broker_name, queue_id"
    return (
        f"SELECT {queue}, max(next_offset) AS next_offset FROM ("
        f"SELECT {queue}, queue_offset + 1 AS next_offset FROM deliveries "
        f"WHERE source_topic = topic AND ({old}) UNION ALL "
        f"SELECT {queue}, next_offset FROM consumer_offsets WHERE query_id = '{RETENTION}'"
        f") AS kept GROUP BY {queue}"
    )


def rows(found: Sequence[dict[str, Any]], before: datetime) -> pa.Table:
    """Builds the rows of `consumer_offsets`.

    Args:
        found: What `question` has for an answer.
        before: What is younger is kept.
    """
    at_ms = round(before.timestamp() * 1000)
    return pa.Table.from_pylist(
        [
            {
                **row,
                "begin_offset": row["next_offset"],
                "subscription": "*",
                "query_id": RETENTION,
                "batch_id": at_ms,
                "recorded_at": before,
                "recorded_ms": at_ms,
            }
            for row in found
        ],
        schema=CONSUMER_OFFSETS.arrow_schema,
    )
