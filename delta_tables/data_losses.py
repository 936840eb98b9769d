"""Table `data_losses`: one row per range a group could not read any more and went on behind.

Owns its schema and its rows.

Invariants: a row names positions that have no delivery and will have none, so `delivery_gaps` can tell what
is known to be lost from what is missing. A row is written after the batch's outcomes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from delta_tables.known_keys import Position
from delta_tables.table import TIMESTAMP, Table, columns

DATA_LOSSES = Table(
    name="data_losses",
    comment="One row per range of positions a group could not read and passed over",
    key=("consumer_group", "topic", "broker_name", "queue_id", "from_offset", "query_id", "batch_id"),
    skipping=("consumer_group", "topic", "queue_id", "from_offset", "to_offset", "recorded_at"),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group"),
            ("topic", pa.string(), "topic read"),
            ("broker_name", pa.string(), "broker"),
            ("queue_id", pa.int32(), "queue"),
            ("from_offset", pa.int64(), "first position lost"),
            ("to_offset", pa.int64(), "last position lost"),
            ("reason", pa.string(), "why: expired before it was read, or damaged in the store"),
            ("query_id", pa.string(), "streaming query"),
            ("batch_id", pa.int64(), "its batch"),
            ("recorded_at", TIMESTAMP, "when the row was written"),
        ]
    ),
)


@dataclass(frozen=True, order=True)
class LostRange:
    """Positions [start, end) of a queue that cannot be read."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int
    reason: str


def without(lost: Iterable[LostRange], delivered: Iterable[Position]) -> list[LostRange]:
    """Cuts the positions that have a delivery out of ranges."""
    offsets: dict[tuple[str, str, int], list[int]] = {}
    for topic, broker_name, queue_id, offset in sorted(set(delivered)):
        offsets.setdefault((topic, broker_name, queue_id), []).append(offset)
    left: list[LostRange] = []
    for part in lost:
        known = offsets.get((part.topic, part.broker_name, part.queue_id), [])
        start = part.start
        for offset in known[bisect_left(known, part.start) : bisect_left(known, part.end)]:
            if offset > start:
                left.append(replace(part, start=start, end=offset))
            start = offset + 1
        if part.end > start:
            left.append(replace(part, start=start))
    return left


def rows(
    lost: Iterable[LostRange], *, consumer_group: str, query_id: str, batch_id: int, recorded_at: datetime
) -> pa.Table:
    """Builds the rows of one batch; what a task that ran twice reported twice is there once."""
    made: list[dict[str, object]] = []
    reached: dict[tuple[str, str, int], int] = {}
    for part in sorted(lost):
        queue = (part.topic, part.broker_name, part.queue_id)
        start = max(part.start, reached.get(queue, part.start))
        if start >= part.end:
            continue
        reached[queue] = part.end
        made.append(
            {
                "consumer_group": consumer_group,
                "topic": part.topic,
                "broker_name": part.broker_name,
                "queue_id": part.queue_id,
                "from_offset": start,
                "to_offset": part.end - 1,
                "reason": part.reason,
                "query_id": query_id,
                "batch_id": batch_id,
                "recorded_at": recorded_at,
            }
        )
    return pa.Table.from_pylist(made, schema=DATA_LOSSES.arrow_schema)
