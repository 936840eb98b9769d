"""The columns the source offers, and which of them a query reads.

Owns the schemas of both layouts. The names and Arrow types are those the store builds (Reader. read_arrow);
a user's ``.schema(...)`` picks some of them, and only those are built, because each column costs on the
JVM's side.
"""

from __future__ import annotations

import difflib

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from structured_streaming.offsets import illegal

_STRING, _INT, _LONG, _TIME, _BINARY = StringType(), IntegerType(), LongType(), TimestampType(), BinaryType()


def _struct(fields: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


DEFAULT = _struct(
    {
        "topic": _STRING,
        "broker_name": _STRING,
        "queue_id": _INT,
        "queue_offset": _LONG,
        "message_id": _STRING,
        "keys": ArrayType(_STRING),
        "tags": _STRING,
        "body": _BINARY,
        "born_timestamp": _TIME,
        "store_timestamp": _TIME,
        "reconsume_times": _INT,
    }
)

EXTRA = _struct(
    {
        "properties": MapType(_STRING, _STRING),
        "flag": _INT,
        "born_host": _STRING,
        "store_host": _STRING,
        "physical_offset": _LONG,
    }
)

KAFKA = _struct(
    {
        "key": _BINARY,
        "value": _BINARY,
        "topic": _STRING,
        "partition": _INT,
        "offset": _LONG,
        "timestamp": _TIME,
        "timestampType": _INT,
    }
)

KAFKA_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", _STRING), StructField("value", _BINARY)]))
)


def offered(layout: str, *, include_properties: bool, include_headers: bool) -> StructType:
    """Returns the columns a query gets that names none."""
    if layout == "kafka":
        return StructType([*KAFKA.fields, *([KAFKA_HEADERS] if include_headers else [])])
    return StructType([*DEFAULT.fields, *(EXTRA.fields if include_properties else [])])


def check_chosen(layout: str, schema: StructType) -> None:
    """Checks that a user's schema names columns the layout has, with their types.

    Every column may be named, also those that need includeProperties or includeHeaders when no
    schema is given.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL with the nearest name, or with the type the column has.
    """
    known = {
        f.name: f.dataType for f in offered(layout, include_properties=True, include_headers=True).fields
    }
    if not schema.fields:
        raise illegal(f"the schema names no column; the layout {layout!r} has {', '.join(known)}")
    for field in schema.fields:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else "."
            raise illegal(
                f"the schema names a column {field.name!r} that the layout {layout!r} does not have{hint} "
                f"It has {', '.join(known)}"
            )
        if not _same_type(known[field.name], field.dataType):
            raise illegal(
                f"column {field.name!r} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as it is and cast it in the query"
            )


def _same_type(own: DataType, asked: DataType) -> bool:
    """Compares types without nullability, which does not change the data."""
    return own.simpleString() == asked.simpleString()
