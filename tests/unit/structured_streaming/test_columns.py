"""Columns by name and type, for what is read and for what is sent."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from store_native.errors import LakeMQError
from structured_streaming import columns
from structured_streaming.sink import columns as sink_columns
from structured_streaming.source.slice_reader import conform

KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "array<int>": ArrayType(IntegerType()),
    "map<string,string>": MapType(StringType(), StringType()),
    "headers": columns.KAFKA_HEADERS.dataType,
}


def ddl(text: str) -> StructType:
    """``StructType.fromDDL`` without a JVM."""
    fields = (field.split(" ") for field in text.split(", "))
    return StructType([StructField(name, KINDS[kind]) for name, kind in fields])


def test_the_kafka_layout_has_the_columns_of_sparks_kafka_source() -> None:
    kafka = columns.offered("kafka", include_properties=False, include_headers=True)
    assert kafka == ddl(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers headers"
    )


def test_properties_and_headers_come_only_when_asked_for() -> None:
    def names(layout: str, asked: bool) -> list[str]:
        return columns.offered(layout, include_properties=asked, include_headers=asked).fieldNames()

    assert "properties" not in names("lakemq", False)
    assert names("lakemq", True)[-5:] == ["properties", "flag", "born_host", "store_host", "physical_offset"]
    assert "headers" not in names("kafka", False)


def test_a_schema_may_pick_any_column_in_any_order() -> None:
    columns.check_chosen(
        "lakemq", ddl("tags string, physical_offset bigint, body binary, keys array<string>")
    )
    columns.check_chosen("kafka", ddl("value binary, headers headers"))


@pytest.mark.parametrize(
    ("layout", "schema", "text"),
    [
        ("lakemq", "boddy binary", r"'boddy' .* did you mean 'body'\? It has topic"),
        ("lakemq", "value binary", "'value' that the layout 'lakemq' does not have"),
        ("lakemq", "body string", "column 'body' is binary, not string"),
        ("lakemq", "keys array<int>", "column 'keys' is array<string>"),
        ("kafka", "body binary", r"does not have\. It has key, value"),
    ],
)
def test_a_schema_with_unknown_columns_or_other_types_is_refused(layout: str, schema: str, text: str) -> None:
    with pytest.raises(LakeMQError, match=text):
        columns.check_chosen(layout, ddl(schema))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(LakeMQError, match="names no column"):
        columns.check_chosen("lakemq", StructType())


def test_batches_get_sparks_schema_without_a_copy() -> None:
    target = to_arrow_schema(ddl("body binary, keys array<string>"), timezone="UTC")
    own = pa.record_batch(
        [pa.array([b"x"]), pa.array([["a"]])],
        schema=pa.schema([pa.field("body", pa.binary(), nullable=False), ("keys", pa.list_(pa.string()))]),
    )
    given = conform(own, target)
    assert given.schema.equals(target)
    assert given.column(0).buffers()[2].address == own.column(0).buffers()[2].address


def test_the_sink_takes_the_documented_columns() -> None:
    sink_columns.check(
        ddl(
            "topic string, body string, keys array<string>, tags string, properties map<string,string>, "
            "sharding_key string, queue_id int, flag int, delay_level int, message_id string, "
            "reconsume_times int, born_timestamp timestamp"
        ),
        None,
    )
    sink_columns.check(ddl("body binary, keys string"), "orders")


@pytest.mark.parametrize(
    ("schema", "topic", "text"),
    [
        ("body binary", None, "option topic or a column topic"),
        ("topic string", None, "needs a column body"),
        ("body int", "t", "'body' must be binary or string, not int"),
        ("body binary, tag string", "t", "'tag': did you mean 'tags'"),
        ("body binary, amount double", "t", "no column 'amount'"),
        ("body binary, deliver_at timestamp", "t", "NOT_IMPLEMENTED: .*deliver_at"),
    ],
)
def test_the_sink_refuses_what_it_cannot_send(schema: str, topic: str | None, text: str) -> None:
    with pytest.raises(LakeMQError, match=text):
        sink_columns.check(ddl(schema), topic)
