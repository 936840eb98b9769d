"""Runs streaming queries to their end and keeps what each batch brought.

Owns the small moves the Spark tests repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

TRIGGER: Final = "300 milliseconds"
"""Of groups that tests run: each of a group's queries asks its broker so often, whatever there is to do."""


@dataclass
class Batches:
    """The rows of each micro-batch, in order.

    ``on_batch`` runs inside a batch, before it is committed.
    """

    on_batch: Callable[[int], None] | None = None
    found: list[list[Row]] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.found.append(batch.collect())
        if self.on_batch is not None:
            self.on_batch(batch_id)

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the batches."""
        return [row for batch in self.found for row in batch]

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had; empty batches left out."""
        return [len(batch) for batch in self.found if batch]


def source(spark: SparkSession, schema: str | None = None, /, **options: Any) -> DataFrame:
    """A stream of LakeMQ; options by name."""
    reader = spark.readStream.format("lakemq").options(**options)
    return (reader.schema(schema) if schema is not None else reader).load()


def table(spark: SparkSession, schema: str | None = None, /, **options: Any) -> DataFrame:
    """A batch read of LakeMQ; options by name."""
    reader = spark.read.format("lakemq").options(**options)
    return (reader.schema(schema) if schema is not None else reader).load()


def run_available(
    frame: DataFrame, checkpoint: Path, on_batch: Callable[[int], None] | None = None
) -> Batches:
    """Runs a stream with Trigger.AvailableNow until it ends by itself."""
    batches = Batches(on_batch)
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def start(frame: DataFrame, checkpoint: Path, batches: Batches) -> StreamingQuery:
    """Starts a stream that goes on until it is stopped."""
    return frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint)).start()


def send_to_sink(frame: DataFrame, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Runs a stream into the lakemq sink until what is available is sent."""
    query = (
        frame.writeStream.format("lakemq")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def forget_last_commit(checkpoint: Path) -> int:
    """Makes Spark run the newest batch again, as after a crash before its commit; returns its id."""
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    return newest
