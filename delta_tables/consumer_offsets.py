"""Table `consumer_offsets`: one row per group, queue and batch: how far the group has come.

Owns its schema and its rows.

Invariants: ranges of one queue follow each other, begin to next, so that `delivery_gaps` can compare what was
reported done with what is there. A report, not the truth: the truth is `deliveries`, and a row here may be
one batch late. Rows of the query `RETENTION` are maintenance's (retained_from.py). No stream of ours follows
the table, so its log need not be kept: it has a commit a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

RETENTION = "retention"
"""The query of a row that says from which offset on maintenance has kept a queue's deliveries."""

CONSUMER_OFFSETS = Table(
    name="consumer_offsets",
    comment="One row per group, queue and batch: how far the group has come",
    key=("consumer_group", "topic", "broker_name", "queue_id", "query_id", "batch_id"),
    skipping=("consumer_group", "topic", "queue_id", "query_id", "next_offset", "recorded_at"),
    kept_hours=3,
    columns=columns(
        [
            ("consumer_group", pa.string(), "group"),
            ("topic", pa.string(), "topic read, the group's retry topic too"),
            ("broker_name", pa.string(), "broker"),
            ("queue_id", pa.int32(), "queue"),
            ("begin_offset", pa.int64(), "first offset of the batch"),
            ("next_offset", pa.int64(), "offset reached: all before it is in deliveries"),
            ("max_offset", pa.int64(), "max offset of the queue as last seen, null when the broker was away"),
            ("lag", pa.int64(), "max_offset - next_offset"),
            ("subscription", pa.string(), "tag filter of the group; * reads all"),
            ("query_id", pa.string(), "streaming query; retention: rows before next_offset were deleted"),
            ("batch_id", pa.int64(), "its batch"),
            ("recorded_at", TIMESTAMP, "when the row was written"),
            ("recorded_ms", pa.int64(), "the same as epoch ms, for arithmetic every SQL engine knows"),
            ("topic_id", pa.string(), "id of the topic: another one once it was deleted and created again"),
            (
                "epoch",
                pa.int64(),
                "epoch of the broker's log: a later one may give offsets again; null in older rows",
            ),
        ]
    ),
)


@dataclass(frozen=True)
class QueueProgress:
    """How far one batch brought the group on one queue."""

    topic: str
    broker_name: str
    queue_id: int
    begin_offset: int
    next_offset: int
    max_offset: int | None
    topic_id: str | None = None
    epoch: int | None = None

    @property
    def has_moved(self) -> bool:
        """Whether the batch covers any of it."""
        return self.next_offset != self.begin_offset


def rows(
    progress: Iterable[QueueProgress],
    *,
    consumer_group: str,
    subscription: str,
    query_id: str,
    batch_id: int,
    recorded_at: datetime,
) -> pa.Table:
    """Builds the rows of one batch."""
    return pa.Table.from_pylist(
        [
            {
                "consumer_group": consumer_group,
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "begin_offset": queue.begin_offset,
                "next_offset": queue.next_offset,
                "max_offset": queue.max_offset,
                "lag": None if queue.max_offset is None else max(0, queue.max_offset - queue.next_offset),
                "subscription": subscription,
                "query_id": query_id,
                "batch_id": batch_id,
                "recorded_at": recorded_at,
                "recorded_ms": round(recorded_at.timestamp() * 1000),
                "topic_id": queue.topic_id or None,
                "epoch": queue.epoch,
            }
            for queue in progress
        ],
        schema=CONSUMER_OFFSETS.arrow_schema,
    )
