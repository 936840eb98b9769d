"""What Spark 4.0, 4.1 and 4.2 name differently, under one name each.

Owns the differences of Spark's interface for Python sources. Below 4.2 Spark asks a source for the end of a
batch without saying where the batch begins and knows no read limits (`PASSES_START` is False); below 4.1 a
streaming sink gets rows, not Arrow batches (`ARROW_SINK` is False).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ARROW_SINK = PASSES_START = True
else:
    ARROW_SINK = hasattr(datasource, "DataSourceStreamArrowWriter")
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        PASSES_START = True
    except ImportError:
        PASSES_START = False

        class ReadLimit:
            """Takes the place of a limit Spark never gives."""

        class ReadAllAvailable(ReadLimit):
            """As ReadLimit."""

        class ReadMaxRows(ReadLimit):
            """As ReadLimit."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Spark then takes the end it saw first as the end of an AvailableNow run."""


__all__ = [
    "ARROW_SINK",
    "PASSES_START",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "as_arrow",
]

_BATCH_ROWS = 10_000


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns a schema in Arrow's words, times in UTC."""
    if PASSES_START:
        return arrow_types.to_arrow_schema(schema, timezone="UTC")
    return arrow_types.to_arrow_schema(schema)  # timestamp_utc by default


def as_arrow(rows: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Gives what a sink is handed as Arrow batches, whatever this Spark hands it."""
    if ARROW_SINK:
        yield from rows
        return
    target = arrow_schema(schema)
    left = iter(rows)
    while some := list(islice(left, _BATCH_ROWS)):
        columns = [
            pa.array([_in_utc(row[at]) for row in some], field.type) for at, field in enumerate(target)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _in_utc(value: Any) -> Any:
    """A row's time is a naive one of the worker's time zone."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
