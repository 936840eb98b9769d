"""Table `skipped_messages`: one row per message that an operator gave up before its group was done with it.

Owns its schema.

Invariants: a row may come while the group runs, and holds from the next batch on until the message has a last
verdict. It decides only what the verdict of an attempt is: the attempt is the group's, and has its own row.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

SKIPPED_MESSAGES = Table(
    name="skipped_messages",
    comment="One row per message that an operator gave up before its group was done with it",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempts"),
    skipping=("consumer_group", "topic", "queue_id", "queue_offset", "message_id", "skipped_at"),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group that does not handle it"),
            ("topic", pa.string(), "topic of the original message"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("attempts", pa.int32(), "attempts made by then: a last verdict of a later one ends the skip"),
            ("message_id", pa.string(), "id of the message"),
            ("skip_id", pa.string(), "of the command that did it"),
            ("operator", pa.string(), "who ran the command: user and host"),
            ("reason", pa.string(), "why"),
            ("skipped_at", TIMESTAMP, "when"),
        ]
    ),
)
