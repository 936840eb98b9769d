"""Table `replays`: one row per dead letter and what an operator did with it: sent again, or discarded.

Owns its schema.

Invariants: a row of a replay is written after its message was sent, so a dead letter without one may have
been sent, and is then sent under the same key.
"""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import TIMESTAMP, Table, columns

REPLAY = "REPLAY"
DISCARD = "DISCARD"

REPLAYS = Table(
    name="replays",
    comment="One row per dead letter and action: it was sent again, or discarded",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempts", "action"),
    skipping=("consumer_group", "topic", "queue_id", "queue_offset", "message_id", "replayed_at"),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group that gave up, and gets a message again that is replayed"),
            ("topic", pa.string(), "topic of the original message"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("attempts", pa.int32(), "attempts made before: the next one has the number behind it"),
            ("message_id", pa.string(), "id, the same on every attempt"),
            ("replay_id", pa.string(), "of the command that did it"),
            ("predicate", pa.string(), "SQL by which the command chose"),
            ("operator", pa.string(), "who ran the command: user and host"),
            ("replayed_at", TIMESTAMP, "when it was sent, or discarded"),
            ("action", pa.string(), "REPLAY or DISCARD; null in rows of older releases, which are replays"),
            ("reason", pa.string(), "why, of DISCARD"),
            ("old_body_sha256", pa.string(), "of the dead letter's body; null where it was sent as it was"),
            ("new_body_sha256", pa.string(), "of the other body that it was sent with"),
        ]
    ),
    version=(1, 1),
)
