"""Table `messages`: one row per stored message, landed by the archive job.

Owns its schema only: the archive job writes it with Delta's own streaming sink, which commits a batch once.

Invariants: a row is never changed; the key is the message's position.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import POSITION_CHECK, STRING_MAP, STRINGS, TIMESTAMP, Table, columns

MESSAGES = Table(
    name="messages",
    comment="One row per stored message",
    key=("topic", "broker_name", "queue_id", "queue_offset"),
    checks=(POSITION_CHECK,),
    skipping=("topic", "queue_id", "queue_offset", "message_id", "store_timestamp"),
    columns=columns(
        [
            ("topic", pa.string(), "topic the message was stored under"),
            ("broker_name", pa.string(), "broker that stored it"),
            ("queue_id", pa.int32(), "message queue"),
            ("queue_offset", pa.int64(), "position in the queue"),
            ("message_id", pa.string(), "UNIQ_KEY, else the offset id"),
            ("keys", STRINGS, "KEYS"),
            ("tags", pa.string(), "TAGS, null without"),
            ("body", pa.binary(), "body as sent"),
            ("born_timestamp", TIMESTAMP, "when the producer made it"),
            ("store_timestamp", TIMESTAMP, "when the broker stored it"),
            ("reconsume_times", pa.int32(), "how often it had been sent back when it was stored"),
            ("properties", STRING_MAP, "the other properties"),
            ("flag", pa.int32(), "the user's flag"),
        ]
    ),
)
