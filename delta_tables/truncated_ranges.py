"""Table `truncated_ranges`: one row per range of offsets, given again, that a group went on behind.

Owns its schema.

Invariants: a row is there before the first message of the later epoch is handled, and for as long as the
ledger is: it says by which name the ledger has those messages (jobs/group/given_again.py).
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

TRUNCATED_RANGES = Table(
    name="truncated_ranges",
    comment="One row per range of offsets that a promoted slave gave again and that a group went on behind",
    key=("consumer_group", "topic", "broker_name", "queue_id", "epoch", "to_offset"),
    skipping=("consumer_group", "topic", "queue_id", "epoch", "recorded_at"),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group"),
            ("topic", pa.string(), "topic read"),
            ("broker_name", pa.string(), "broker"),
            ("queue_id", pa.int32(), "queue"),
            ("from_offset", pa.int64(), "first offset that the promoted slave lacked"),
            ("to_offset", pa.int64(), "last offset that the group had come to"),
            ("epoch_before", pa.int64(), "epoch of the messages that are gone"),
            ("epoch", pa.int64(), "first epoch of the log that gave the offsets again"),
            ("named", pa.string(), "broker_name, in this ledger, of the messages that have the offsets now"),
            ("recorded_at", TIMESTAMP, "when the row was written"),
        ]
    ),
)
