"""The original position of a message, behind a retried one, column by column.

Owns the names of the properties that carry it and their parsing in Arrow. Pure.

Invariants: a row of the ledger is keyed by the original position plus the attempt, so all attempts of one
message share their first five key columns wherever they were read.

Processes: executors.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from store_native.names import retry_topic

ORIGIN = "LMQ_ORIGIN"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

LAST_ATTEMPT = 2**31 - 1
"""The greatest number an attempt can have: counting on stays there."""

_MOST_QUEUE_ID = 2**31 - 1
_MOST_QUEUE_OFFSET = 2**63 - 1
# As this project writes it, so that one position has one text; the digits fit uint64, bounds come after.
_POSITION = r"^(?P<broker_name>.+)/(?P<queue_id>0|[1-9][0-9]{0,9})/(?P<queue_offset>0|[1-9][0-9]{0,18})$"


@dataclass(frozen=True)
class Positions:
    """Original position and attempt of each row of a batch."""

    topic: pa.Array
    broker_name: pa.Array
    queue_id: pa.Array
    queue_offset: pa.Array
    attempt: pa.Array

    def take(self, rows: pa.Array) -> Positions:
        """Those of some rows, in their order."""
        return Positions(**{name: column.take(rows) for name, column in vars(self).items()})


def original_positions(batch: pa.RecordBatch, group: str) -> Positions:
    """Finds the original position of each row.

    A row of the group's retry topic carries it in LMQ_ORIGIN and RETRY_TOPIC, and its attempt is
    reconsume_times + 1, LAST_ATTEMPT at most. Any other row is at its original position, attempt 1.
    Anybody can send to the retry topic: a row there without an origin that is a position, or that never
    came back (reconsume_times 0: its key would be another message's first delivery), counts as being
    where it is.
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
    queue_id = pc.struct_field(position, "queue_id").cast(pa.uint64())
    queue_offset = pc.struct_field(position, "queue_offset").cast(pa.uint64())
    came_back = pc.max_element_wise(batch.column("reconsume_times"), pa.scalar(0, pa.int32()))
    carried = pc.and_(from_retry, pc.greater(came_back, 0))
    for holds in (
        pc.less_equal(queue_id, pa.scalar(_MOST_QUEUE_ID, pa.uint64())),
        pc.less_equal(queue_offset, pa.scalar(_MOST_QUEUE_OFFSET, pa.uint64())),
        pc.not_equal(topic, ""),
    ):
        carried = pc.and_(carried, pc.fill_null(holds, False))

    def choose(original: pa.Array, name: str) -> pa.Array:
        here = batch.column(name)
        held = pc.if_else(carried, original, pa.scalar(None, original.type))
        return pc.if_else(carried, held.cast(here.type), here)

    before = pc.min_element_wise(came_back, pa.scalar(LAST_ATTEMPT - 1, pa.int32()))
    attempt = pc.if_else(from_retry, pc.add(before, pa.scalar(1, pa.int32())), pa.scalar(1, pa.int32()))
    return Positions(
        choose(topic, "topic"),
        choose(pc.struct_field(position, "broker_name"), "broker_name"),
        choose(queue_id, "queue_id"),
        choose(queue_offset, "queue_offset"),
        attempt,
    )


def _lookup(properties: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(properties, pa.scalar(name), "first")
