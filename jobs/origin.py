"""Where a message first stood: the original position behind a retried one, column by column.

Owns the names of the properties that carry it and their parsing in Arrow. Pure. Never breaks: a row
of the ledger is keyed by the original position plus the attempt, so all attempts of one message share
their first five key columns wherever they were read. Called on executors by `outcomes`, and for the
property names by the retry and dead_letter jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"

ORIGIN = "LMQ_ORIGIN"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

_POSITION = r"^(?P<broker_name>.+)/(?P<queue_id>\d+)/(?P<queue_offset>\d+)$"


def retry_topic(group: str) -> str:
    """The topic on which a group's failed messages come back."""
    return RETRY_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of a group's dead letters."""
    return DLQ_TOPIC_PREFIX + group


@dataclass(frozen=True)
class Positions:
    """Original position and attempt of each row of a batch."""

    topic: pa.Array
    broker_name: pa.Array
    queue_id: pa.Array
    queue_offset: pa.Array
    attempt: pa.Array


def original_positions(batch: pa.RecordBatch, group: str) -> Positions:
    """Finds the original position of each row.

    A row of the group's retry topic carries it in LMQ_ORIGIN and RETRY_TOPIC, and its attempt is
    reconsume_times + 1. Any other row stands at its original position, attempt 1. A row of the retry
    topic that some other program put there, without LMQ_ORIGIN, counts as standing where it is.
    """
    rows = batch.num_rows
    from_retry = pc.equal(batch.column("topic"), retry_topic(group))
    if rows == 0 or not pc.any(from_retry).as_py():
        return Positions(
            batch.column("topic"),
            batch.column("broker_name"),
            batch.column("queue_id"),
            batch.column("queue_offset"),
            pa.repeat(pa.scalar(1, pa.int32()), rows),
        )
    properties = batch.column("properties")
    position = pc.extract_regex(_lookup(properties, ORIGIN), _POSITION)
    topic = _lookup(properties, RETRY_TOPIC)
    carried = pc.fill_null(pc.and_(from_retry, pc.and_(pc.is_valid(position), pc.is_valid(topic))), False)

    def choose(original: pa.Array, name: str) -> pa.Array:
        here = batch.column(name)
        return pc.if_else(carried, original.cast(here.type), here)

    return Positions(
        choose(topic, "topic"),
        choose(pc.struct_field(position, "broker_name"), "broker_name"),
        choose(pc.struct_field(position, "queue_id"), "queue_id"),
        choose(pc.struct_field(position, "queue_offset"), "queue_offset"),
        pc.if_else(from_retry, pc.add(batch.column("reconsume_times"), pa.scalar(1, pa.int32())), 1).cast(
            pa.int32()
        ),
    )


def _lookup(properties: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(properties, pa.scalar(name), "first")
