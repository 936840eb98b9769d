"""The columns the sink takes.

Owns their names and types, and the check of a query's columns against them, made on the driver before
anything is sent.
"""

from __future__ import annotations

import difflib

from pyspark.sql.types import StructType

from store_native.errors import from_code
from structured_streaming.offsets import illegal

DUE_AT = "due_at"
"""The column that says until when a row waits, at most for its delay_level."""
_WHOLE = ("int", "bigint", "smallint", "tinyint")
COLUMNS = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("array<string>", "string"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "queue_id": _WHOLE,
    "flag": _WHOLE,
    "delay_level": _WHOLE,
    "message_id": ("string",),
    "reconsume_times": _WHOLE,
    "born_timestamp": ("timestamp", "bigint"),
    DUE_AT: ("timestamp", "bigint"),
}
_TIMERS = ("deliver_at", "delay_ms")


def check(schema: StructType, topic: str | None) -> None:
    """Checks the rows a query wants to send.

    Args:
        schema: The query's columns.
        topic: The option ``topic``.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL, naming the column; NOT_IMPLEMENTED for timers.
    """
    for field in schema.fields:
        if field.name in _TIMERS:
            raise from_code(
                "NOT_IMPLEMENTED",
                f"the column {field.name} comes with a later release: use delay_level until then",
            )
        taken = COLUMNS.get(field.name)
        if taken is None:
            near = difflib.get_close_matches(field.name, COLUMNS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(COLUMNS)}"
            raise illegal(f"the sink takes no column {field.name!r}: {hint}", column=field.name)
        found = field.dataType.simpleString()
        if found not in taken and found != "void":
            raise illegal(
                f"the column {field.name!r} must be {' or '.join(taken)}, not {found}", column=field.name
            )
    names = schema.fieldNames()
    if "body" not in names:
        raise illegal("the sink needs a column body (binary or string): select what to send AS body")
    if DUE_AT in names and "delay_level" not in names:
        raise illegal(
            f"the column {DUE_AT} needs the column delay_level, the longest that a row waits", column=DUE_AT
        )
    if topic is None and "topic" not in names:
        raise illegal("the sink needs the option topic or a column topic")
