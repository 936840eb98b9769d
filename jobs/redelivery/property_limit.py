"""Whether a message's properties leave space for those a retry or a dead letter adds.

Owns the broker's limit and the counting of bytes against it, in Arrow for the outcomes and in Spark SQL for
the dead letters. Pure.

Invariants: what counts as fitting is taken by the broker, so that no single message stops the
reactions stream.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from jobs.redelivery.counted_attempts import MARKS
from jobs.redelivery.original_position import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC, Positions

LIMIT_BYTES = 32_767 - 512
"""What a sender may give as tags, keys, id and properties together; the store keeps the rest for itself."""

PROPERTIES_TOO_LARGE = (
    f"its properties leave no space for those a retry adds (all of them: {LIMIT_BYTES:,} bytes at most)"
)

RETRY_PROPERTIES = (RETRY_TOPIC, ORIGIN_MESSAGE_ID, ORIGIN, FIRST_ATTEMPT_PROPERTY, *MARKS)

_SEPARATORS = 2
_FIXED_NAMES = ("KEYS", "TAGS", "UNIQ_KEY", *RETRY_PROPERTIES)
# The longest "/queue_id/queue_offset", time, two counts and marks: all attempts of a message count the same.
_NUMBERS = (
    len("/2147483647/9223372036854775807") + len("9223372036854775807") + 2 * len("2147483647") + len("11")
)
_FIXED_BYTES = sum(len(name) + _SEPARATORS for name in _FIXED_NAMES) + _NUMBERS


def leaves_space_for_retry(batch: pa.RecordBatch, positions: Positions) -> pa.Array:
    """Says of each message whether the broker takes it back as a retry.

    Args:
        batch: messages, with the columns message_id, keys, tags and properties.
        positions: their original positions.

    Returns:
        One boolean per row.
    """
    bytes_of = _FIXED_BYTES
    for text in (
        batch.column("message_id"),
        batch.column("message_id"),  # as the id, and as ORIGIN_MESSAGE_ID
        batch.column("tags"),
        pc.binary_join(batch.column("keys"), " "),
        positions.topic,
        positions.broker_name,
    ):
        bytes_of = pc.add(bytes_of, _length(text))
    return pc.less_equal(pc.add(bytes_of, _carried_bytes(batch.column("properties"))), LIMIT_BYTES)


def fits_in_sql(properties: str) -> str:
    """A Spark SQL condition: the broker takes a row's message_id, keys and tags with these properties.

    Args:
        properties: SQL of a map<string,string> without nulls.
    """
    named = " + ".join(
        f"coalesce(octet_length({text}) + {len(name) + _SEPARATORS}, 0)"
        for name, text in (("UNIQ_KEY", "message_id"), ("KEYS", "array_join(keys, ' ')"), ("TAGS", "tags"))
    )
    texts = f"array_join(map_keys({properties}), '') || array_join(map_values({properties}), '')"
    return f"{named} + octet_length({texts}) + {_SEPARATORS} * size({properties}) <= {LIMIT_BYTES}"


def _carried_bytes(properties: pa.MapArray) -> pa.Array:
    """Encoded bytes of each row's properties without those the retry replaces."""
    own = pc.is_in(properties.keys, value_set=pa.array(RETRY_PROPERTIES))
    both = pc.add(_length(properties.keys), _length(properties.items))
    each = pc.if_else(own, 0, pc.add(both, _SEPARATORS))
    before = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each.cast(pa.int64()))])
    offsets = properties.offsets
    return pc.subtract(before.take(offsets[1:]), before.take(offsets[:-1]))


def _length(text: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(text), 0)
