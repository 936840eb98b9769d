"""Table `refused_sends`: one row per refusal of a message that a verdict sends.

Owns its schema.

Invariants: a row says what a broker answered at a time, not that the message waits still: `pending_sends`
says that. A refusal is written when it is first met and when it changes, not at each try.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

REFUSED_SENDS = Table(
    name="refused_sends",
    comment="One row per refusal of a message that a verdict sends",
    key=(
        *("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt", "number"),
        "refused_at",
    ),
    skipping=("consumer_group", "topic", "queue_id", "queue_offset", "message_id", "refused_at"),
    version=(1, 1),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group whose verdict it was"),
            ("topic", pa.string(), "topic of the message the verdict was about: of its original"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("attempt", pa.int32(), "attempt that was acknowledged"),
            ("number", pa.int32(), "1 for the first message the verdict sends"),
            ("message_id", pa.string(), "id of the message the verdict was about"),
            ("sent_topic", pa.string(), "topic it is sent to, null of a row"),
            ("sent_message_id", pa.string(), "id it is sent with, null of a row"),
            ("query_id", pa.string(), "streaming query of the attempt"),
            ("batch_id", pa.int64(), "batch of the attempt"),
            ("code", pa.string(), "the broker's reason, such as MESSAGE_TOO_LARGE or NO_PERMISSION"),
            ("error", pa.string(), "its sentence"),
            ("refused_at", TIMESTAMP, "when it was refused"),
            (
                "sent_table",
                pa.string(),
                "table of a row that was to be written, null of a message",
            ),
        ]
    ),
)
