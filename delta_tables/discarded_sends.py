"""Table `discarded_sends`: one row per message of a verdict that an operator gave up before it was sent.

Owns its schema.

Invariants: a row may come while the group runs, and holds from the next try on. A message with a row here and
one in `sent_messages` was being sent when it was given up.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

DISCARDED_SENDS = Table(
    name="discarded_sends",
    comment="One row per message of a verdict that was given up before it was sent",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt", "number"),
    skipping=("consumer_group", "topic", "queue_id", "queue_offset", "message_id", "discarded_at"),
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
            ("sent_topic", pa.string(), "topic it was to go to, null of a row"),
            ("sent_message_id", pa.string(), "id it was to have, null of a row"),
            ("discard_id", pa.string(), "of the command that did it"),
            ("predicate", pa.string(), "SQL by which the command chose"),
            ("operator", pa.string(), "who ran the command: user and host"),
            ("reason", pa.string(), "why"),
            ("discarded_at", TIMESTAMP, "when"),
            (
                "sent_table",
                pa.string(),
                "table of a row that was to be written, null of a message",
            ),
        ]
    ),
)
