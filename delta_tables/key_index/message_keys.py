"""Table `message_keys`: one row per key of a row of `deliveries`, sorted by key.

Owns its schema, and the number that stands for a file.

Invariants: it is derived, and may be deleted at any time. A generation is sorted by key, in files of bounded
size, so that minimum and maximum of `key` leave all but one of its files unread. Its rows without a key come
last, and say which files it is of: all their rows are in it. Of several that name a file the newest counts.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa

from delta_tables.deliveries import DELIVERIES
from delta_tables.table import Table, columns

KEYED_COLUMNS = (
    "consumer_group",
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "attempt",
    "verdict",
    "message_id",
    "reason",
    "error_type",
    "error_text",
    "finished_at",
)
"""What is told of a delivery beside its key; of the first release on."""

MESSAGE_KEYS = Table(
    name="message_keys",
    comment="Index of deliveries by key; derived, may be deleted",
    key=("generation", "file", "key", *DELIVERIES.key, "verdict"),
    skipping=("key",),
    kept_hours=3,
    columns=columns(
        [
            ("generation", pa.int64(), "entries that are sorted, and are replaced, together"),
            ("file", pa.int64(), "the data file of deliveries that the entry is of"),
            ("rows", pa.int64(), "how many rows this file has, where the row has no key"),
            ("key", pa.string(), "one of the message's keys; null in a row that names an indexed file"),
        ]
    )
    + tuple(column for column in DELIVERIES.columns if column.name in KEYED_COLUMNS),
)


def number_of(file: str) -> int:
    """What stands for a data file: names are drawn at random, so that two numbers are alike by 1 in 2^64.

    Args:
        file: Its path as the table's log has it.
    """
    return int.from_bytes(hashlib.sha256(file.encode()).digest()[:8], "big", signed=True)
