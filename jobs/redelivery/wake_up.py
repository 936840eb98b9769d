"""A message on a group's retry topic that makes a batch, for lanes that wait for nothing else.

Owns how it is known; it is never handled, in whatever mode the group is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.redelivery.original_position import ORIGIN
from lakemq.client import Client
from store_native.names import retry_topic

_PROPERTY = "LMQ_WAKE_UP"


def send(client: Client, group: str) -> None:
    """Makes a batch.

    Raises:
        LakeMQError: no broker took the message.
    """
    client.send(retry_topic(group), b"wake up", properties={_PROPERTY: "1"})


def without_wake_ups(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The other messages of a batch of the retry topic.

    A retry has the properties of its sender, whatever they are, and where it comes from.
    """
    properties = batch.column("properties")
    said = pc.map_lookup(properties, pa.scalar(_PROPERTY), "first")
    if said.null_count == len(said):
        return batch
    is_retry = pc.map_lookup(properties, pa.scalar(ORIGIN), "first").is_valid()
    return batch.filter(pc.or_(said.is_null(), is_retry))
