"""Table `sent_messages`: one row per message that a verdict sent.

Owns its schema.

Invariants: at most one row per attempt and number; a row is written after the message was sent, so a
row is proof.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import STRINGS, TIMESTAMP, Table, columns

SENT_MESSAGES = Table(
    name="sent_messages",
    comment="One row per message that a verdict sent",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt", "number"),
    skipping=(
        "consumer_group",
        "topic",
        "queue_id",
        "queue_offset",
        "message_id",
        "sent_topic",
        "sent_message_id",
        "sent_at",
        "query_id",
        "batch_id",
    ),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group whose verdict it was"),
            ("topic", pa.string(), "topic of the message the verdict was about: of its original"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("attempt", pa.int32(), "attempt that was acknowledged"),
            ("number", pa.int32(), "1 for the first message the verdict sent"),
            ("message_id", pa.string(), "id of the message the verdict was about"),
            ("sent_topic", pa.string(), "topic it was sent to"),
            ("sent_message_id", pa.string(), "id it was sent with"),
            ("sent_keys", STRINGS, "KEYS it was sent with"),
            ("sent_tags", pa.string(), "TAGS it was sent with, null without"),
            ("sent_at", TIMESTAMP, "when the broker had it"),
            ("query_id", pa.string(), "streaming query of the attempt"),
            ("batch_id", pa.int64(), "batch of the attempt"),
        ]
    ),
)
