"""A lane: messages of a queue that are handled one after the other.

Owns whose lane a message is on, and its sharding key's way through the ledger and the retry topic.

Invariants: all attempts of a message are on one lane, which follows from its original position and its
sharding key. Pure.

Processes: executors and the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import SHARDING_KEY_PROPERTY
from jobs.redelivery.original_position import Positions

SHARDING_KEY = "sharding_key"
"""The column of the store's that holds it."""


class Lane(NamedTuple):
    """The messages of a queue with one sharding key, or those without."""

    topic: str
    broker_name: str
    queue_id: int
    sharding_key: str | None


class Attempt(NamedTuple):
    """An attempt at a message of a lane, by its original position in the lane's queue; they sort in order."""

    queue_offset: int
    number: int


def lanes_of(batch: pa.RecordBatch, positions: Positions) -> list[tuple[Lane, Attempt]]:
    """Which attempt on which lane each row is."""
    keys = pc.map_lookup(batch.column("properties"), pa.scalar(SHARDING_KEY_PROPERTY), "first").to_pylist()
    columns = (positions.topic, positions.broker_name, positions.queue_id)
    lanes: Iterable[Lane] = map(Lane, *(column.to_pylist() for column in columns), keys)
    attempts = map(Attempt, positions.queue_offset.to_pylist(), positions.attempt.to_pylist())
    return list(zip(lanes, attempts, strict=True))


def with_carried_key(batch: pa.RecordBatch, *, retried: bool = False) -> pa.RecordBatch:
    """Moves the sharding key into a property, which is kept with the ledger's row and with a retry.

    The store's own goes to the queue only: a message on the retry topic has none.

    Args:
        batch: messages as they are stored.
        retried: they are of the retry topic. Elsewhere a property of that name is the sender's, and no key.
    """
    at = batch.schema.get_field_index(SHARDING_KEY)
    keys, rest = batch.column(at), batch.remove_column(at)
    properties = rest.column("properties")
    stands = pc.map_lookup(properties, pa.scalar(SHARDING_KEY_PROPERTY), "first")
    if keys.null_count == len(keys) and (retried or stands.null_count == len(keys)):
        return rest
    made = []
    for pairs, key in zip(properties.to_pylist(), keys.to_pylist(), strict=True):
        if pairs is not None and (key is not None or not retried):
            pairs = [pair for pair in pairs if pair[0] != SHARDING_KEY_PROPERTY]
        if key is not None:
            pairs = [*(pairs or ()), (SHARDING_KEY_PROPERTY, key)]
        made.append(pairs)
    at = rest.schema.get_field_index("properties")
    return rest.set_column(at, rest.schema.field(at), pa.array(made, properties.type))
