"""``format("lakemq")``: what Spark finds when it looks for the source.

Owns the entry points of source and sink. Spark makes instances in several short-lived Python
processes, also on the driver's side; constructing checks option names and does nothing else. Found
without registering through pyspark_lakemq, or registered: ``spark.dataSource.register(LakeMQDataSource)``.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from lakemq import spark_daemon
from structured_streaming import columns
from structured_streaming.option_names import check_names, with_environment
from structured_streaming.options import parse_read
from structured_streaming.sink.batch_writer import LakeMQBatchWriter
from structured_streaming.sink.stream_writer import LakeMQStreamWriter
from structured_streaming.source.batch_reader import LakeMQBatchReader
from structured_streaming.source.stream_reader import LakeMQStreamReader


class LakeMQDataSource(DataSource):
    """Reads message queues into Spark and writes rows to topics; docs/spark.md has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return "lakemq"

    def schema(self) -> StructType:
        """Returns the columns of a read that names none; called at ``load()``, where wrong options show."""
        # Whether it is a stream is not known yet; what ends is a batch read.
        given = with_environment(self.options)
        streaming = not any(name.startswith("ending") for name in given)
        chosen = parse_read(given, streaming=streaming)
        return columns.offered(
            chosen.layout,
            include_properties=chosen.include_properties,
            include_headers=chosen.include_headers,
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of ``spark.read``; called on the driver when the read is planned."""
        return LakeMQBatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of ``spark.readStream``; called on the driver, more than once."""
        return LakeMQStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer of ``df.write``; called on the driver, pickled to the tasks."""
        return LakeMQBatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns the writer of ``df.writeStream``; called on the driver, pickled to the tasks."""
        return LakeMQStreamWriter(self.options, schema, overwrite)


# Spark starts the workers that plan a read or a write under its own daemon, whatever the session names.
spark_daemon.hush_worker()
