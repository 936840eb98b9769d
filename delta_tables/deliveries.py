"""Table `deliveries`: one row per attempt of a group at a message.

Owns the schema of an outcome.

Invariants: at most one row per key, which is the message's ORIGINAL position plus the attempt, wherever this
attempt was read (`source_*`), and beside it at most one that is PARKED: the attempt was not made then, since
the group is orderly and an earlier message of the lane was not done. Body and properties are kept only when
the verdict is not ACK (an acknowledged message is still in the log or in `messages`). What a verdict sends,
and the rows it writes, are in its row: all are there or none.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.check import AtLeast, Check, OneOf
from delta_tables.table import (
    OUTBOX,
    POSITION_CHECK,
    STRING_MAP,
    STRINGS,
    TABLE_ROWS,
    TIMESTAMP,
    Table,
    columns,
)

ACK = "ACK"
RETRY = "RETRY"
DEAD = "DEAD"
DROPPED = "DROPPED"
PARKED = "PARKED"

SHARDING_KEY_PROPERTY = "LMQ_SHARDING_KEY"
"""Property in which an orderly group keeps a message's sharding key, in its rows and on the retry topic."""

ORDERLY_PROPERTY = "LMQ_ORDERLY"
"""Property of a failed attempt of an orderly group, whose lane waits for the next one."""

DELIVERY_KEY = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")

DELIVERIES = Table(
    name="deliveries",
    comment="One row per attempt of a group at a message",
    key=DELIVERY_KEY,
    checks=(
        POSITION_CHECK,
        Check("attempt", (AtLeast("attempt", 1),)),
        Check("verdict", (OneOf("verdict", (ACK, RETRY, DEAD, DROPPED, PARKED)),)),
    ),
    skipping=(
        "consumer_group",
        "topic",
        "queue_id",
        "queue_offset",
        "attempt",
        "verdict",
        "message_id",
        "finished_at",
        "query_id",
        "sends",
        "writes",
    ),
    version=(1, 1),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group that handled the message"),
            ("topic", pa.string(), "topic of the original message"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("attempt", pa.int32(), "1 for the first delivery, 2 for the first retry"),
            (
                "verdict",
                pa.string(),
                "ACK, RETRY (comes again), DEAD (given up), DROPPED (broadcast mode), PARKED (orderly mode: "
                "the attempt waits for an earlier message)",
            ),
            ("message_id", pa.string(), "id, the same on every attempt"),
            ("keys", STRINGS, "KEYS"),
            ("tags", pa.string(), "TAGS, null without"),
            ("reason", pa.string(), "why it was given up, or what the handler said"),
            ("error_type", pa.string(), "class of the handler's exception"),
            ("error_text", pa.string(), "text of the handler's exception"),
            ("error_trace", pa.string(), "its traceback"),
            (
                "started_at",
                TIMESTAMP,
                "when the handler was called or the message skipped, null when PARKED or put off",
            ),
            ("finished_at", TIMESTAMP, "when it returned, or when the message was parked"),
            ("next_attempt_at", TIMESTAMP, "due time of the next attempt, RETRY only"),
            ("delay_level", pa.int32(), "delay level of the next attempt, RETRY only"),
            ("source_topic", pa.string(), "topic this attempt was read from"),
            ("source_broker_name", pa.string(), "broker it was read from; null in rows of older releases"),
            ("source_queue_id", pa.int32(), "queue this attempt was read from"),
            ("source_queue_offset", pa.int64(), "position this attempt was read from"),
            ("born_timestamp", TIMESTAMP, "when the producer made the message"),
            ("store_timestamp", TIMESTAMP, "when the broker stored what this attempt read"),
            ("worker", pa.string(), "host and process of the executor's Python worker"),
            ("query_id", pa.string(), "streaming query that wrote the row"),
            ("batch_id", pa.int64(), "its batch"),
            ("flag", pa.int32(), "the user's flag, not for ACK"),
            ("properties", STRING_MAP, "the other properties, not for ACK"),
            ("body", pa.binary(), "body, not for ACK"),
            ("sends", pa.int32(), "how many messages the verdict sends, null without"),
            ("outbox", OUTBOX, "these messages, in order; sent_messages says which were sent"),
            ("writes", pa.int32(), "how many rows the verdict writes, null without"),
            ("table_rows", TABLE_ROWS, "these rows, in order; written_rows says which were written"),
        ]
    ),
)
