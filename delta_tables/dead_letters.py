"""Table `dead_letters`: one row per message a group has given up.

Owns its schema and how a DEAD delivery becomes a dead letter.

Invariants: at most one row per original position, group and number of attempts: a message that was replayed
may be given up again. A row is written after the message went to
`%DLQ%<group>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.check import AtLeast, Check
from delta_tables.table import POSITION_CHECK, STRING_MAP, STRINGS, TIMESTAMP, Table, columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_ATTEMPT_PROPERTY = "LMQ_FIRST_ATTEMPT_AT"
"""Property (epoch ms) in which the first attempt's time travels with the retried message."""

DEAD_LETTERS = Table(
    name="dead_letters",
    comment="One row per message a group has given up",
    key=("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempts"),
    checks=(POSITION_CHECK, Check("attempts", (AtLeast("attempts", 1),))),
    skipping=("consumer_group", "topic", "queue_id", "queue_offset", "message_id", "last_attempt_at"),
    columns=columns(
        [
            ("consumer_group", pa.string(), "group that gave up"),
            ("topic", pa.string(), "topic of the original message"),
            ("broker_name", pa.string(), "broker of the original message"),
            ("queue_id", pa.int32(), "queue of the original message"),
            ("queue_offset", pa.int64(), "position of the original message in its queue"),
            ("message_id", pa.string(), "id, the same on every attempt"),
            ("keys", STRINGS, "KEYS"),
            ("tags", pa.string(), "TAGS, null without"),
            ("reason", pa.string(), "why it was given up"),
            ("attempts", pa.int32(), "how many attempts were made"),
            ("first_attempt_at", TIMESTAMP, "start of the first attempt"),
            ("last_attempt_at", TIMESTAMP, "end of the last attempt"),
            ("error_type", pa.string(), "class of the last exception"),
            ("error_text", pa.string(), "text of the last exception"),
            ("error_trace", pa.string(), "its traceback"),
            ("worker", pa.string(), "where the last attempt ran"),
            ("query_id", pa.string(), "streaming query of the last attempt"),
            ("batch_id", pa.int64(), "batch of the last attempt"),
            ("flag", pa.int32(), "the user's flag"),
            ("properties", STRING_MAP, "the other properties"),
            ("body", pa.binary(), "body"),
        ]
    ),
)


def from_deliveries(dead: DataFrame) -> DataFrame:
    """Turns DEAD rows of `deliveries` into rows of `dead_letters`.

    Args:
        dead: rows of `deliveries`, all columns.

    Returns:
        The same rows with the columns of DEAD_LETTERS, in order.
    """
    first_attempt = (
        f"coalesce(timestamp_millis(try_cast(properties['{FIRST_ATTEMPT_PROPERTY}'] AS BIGINT)), started_at)"
    )
    computed = {
        "attempts": "attempt",
        "first_attempt_at": first_attempt,
        "last_attempt_at": "finished_at",
    }
    return dead.selectExpr(*(f"{computed.get(name, name)} AS {name}" for name in DEAD_LETTERS.column_names))
