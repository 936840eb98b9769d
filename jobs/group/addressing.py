"""The messages of a batch's verdicts, as they will be sent.

Owns their ids, the properties that say what caused them, and which a broker would not take for where they go.
Pure.

Invariants: an id follows from the delivery key and the message's number, so whoever sends it sends the same.

Processes: executors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.table import OUTBOX
from jobs.handler.outgoing import CAUSE, CAUSE_GROUP, Plain
from jobs.redelivery.original_position import Positions
from jobs.redelivery.property_limit import LIMIT_BYTES

_SEPARATORS = 2
_ID_BYTES = 16


@dataclass(frozen=True)
class Acceptance:
    """What of the messages of a group's verdicts is taken.

    Attributes:
        send_to: the topics that it may send to.
        largest_body: bytes of a body that every broker takes; None where that is not known.
    """

    send_to: Collection[str]
    largest_body: int | None = None

    def refusal(self, message: Plain) -> str | None:
        """Why an addressed message is not sent."""
        topic = message["topic"]
        if topic not in self.send_to:
            named = ", ".join(sorted(self.send_to)) or "no topic"
            return f"the group sends to {named}, not to {topic!r}: name it with --send-to"
        size = _properties_bytes(message)
        if size > LIMIT_BYTES:
            return (
                f"tags, keys, properties, sharding key and id of a message to {topic} take "
                f"{LIMIT_BYTES:,} bytes at most, not {size:,}"
            )
        body = len(message["body"])
        if self.largest_body is not None and body > self.largest_body:
            return (
                f"the body of a message to {topic} has {self.largest_body:,} bytes at most, not {body:,}: "
                "max_message_bytes of the broker"
            )
        return None


def addressed(
    outbox: pa.Array, message_ids: pa.Array, positions: Positions, group: str, accepts: Acceptance
) -> tuple[pa.Array, pa.Array]:
    """Completes the messages that a batch's verdicts send.

    Args:
        outbox: per row what its verdict sends, null for nothing.
        message_ids: per row the id of its message.
        positions: per row its original position and attempt.
        group: the group.
        accepts: what it may send.

    Returns:
        Per row the messages, and why they cannot be sent; one of the two is null, or both.
    """
    columns = (positions.topic, positions.broker_name, positions.queue_id, positions.queue_offset)
    made: list[Any] = [None] * len(outbox)
    refused: list[str | None] = [None] * len(outbox)
    for row in pc.indices_nonzero(outbox.is_valid()).to_pylist():
        cause = message_ids[row].as_py()
        key = (group, *(column[row].as_py() for column in columns), positions.attempt[row].as_py())
        messages = [
            _addressed(message, sent_id(key, number), cause, group)
            for number, message in enumerate(outbox[row].as_py(), start=1)
        ]
        refused[row] = next(filter(None, (accepts.refusal(message) for message in messages)), None)
        if refused[row] is None:
            made[row] = messages
    return pa.array(made, OUTBOX), pa.array(refused, pa.string())


def sent_id(key: tuple[str, str, str, int, int, int], number: int) -> str:
    """The id of the message that a verdict sends as its n-th, in the length of a broker's own.

    Args:
        key: of the delivery.
        number: 1 for the first.
    """
    text = "\n".join(map(str, (*key, number)))
    return hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest().upper()


def _addressed(message: Plain, message_id: str, cause: str | None, group: str) -> Plain:
    own = [(CAUSE_GROUP, group)] if not cause else [(CAUSE, cause), (CAUSE_GROUP, group)]
    return message | {"message_id": message_id, "properties": [*message["properties"], *own]}


def _properties_bytes(message: Plain) -> int:
    """Bytes of a message's properties as a record holds them."""
    named = [
        ("TAGS", message["tags"]),
        ("KEYS", " ".join(message["keys"]) or None),
        ("UNIQ_KEY", message["message_id"]),
        ("__SHARDINGKEY", message["sharding_key"]),
        *message["properties"],
    ]
    return sum(
        len(name.encode()) + len(value.encode()) + _SEPARATORS for name, value in named if value is not None
    )
