"""Table `written_rows`: one row per row that a verdict wrote to a user's table.

Owns its schema.

Invariants: at most one row per attempt and number; a row is written after the user's table had it, so a row
is proof. Numbers go on behind those of the messages that the verdict sends.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

WRITTEN_ROWS = Table(
    name="written_rows",
    comment="One row per row that a verdict wrote to a user's table",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt", "number"),
    skipping=(
        "consumer_group",
        "topic",
        "queue_id",
        "queue_offset",
        "message_id",
        "table_name",
        "written_at",
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
            ("number", pa.int32(), "1 more than the messages the verdict sent, for its first row"),
            ("message_id", pa.string(), "id of the message the verdict was about"),
            ("table_name", pa.string(), "name of the table, as the group was given it"),
            ("written_at", TIMESTAMP, "when it was known that the table has it"),
            ("query_id", pa.string(), "streaming query of the attempt"),
            ("batch_id", pa.int64(), "batch of the attempt"),
        ]
    ),
)
