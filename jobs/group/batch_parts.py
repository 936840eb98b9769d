"""The parts of a batch: first deliveries, and what comes again.

Owns which tasks have which of a batch's messages, and that what the ledger has is left out.

Invariants: the parts are disjoint; together they have each message of the batch that the ledger does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.task_rows import ArrowFunction
from jobs.group.known_attempts import WithoutKnown, known_attempts
from jobs.group.retry_shares import RetryShares
from jobs.group.slice_tasks import ReadAndHandleTask, ReadTask, into_bins, per_bin, tasks_for
from store_native.names import retry_topic
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader


@dataclass(frozen=True)
class BatchPart:
    """Messages that some tasks read.

    Attributes:
        read: from a task's number to its messages.
        tasks: how many there are.
    """

    read: ArrowFunction
    tasks: int


def parts_of(
    spark: SparkSession,
    ledger: LedgerLocation,
    group: str,
    reader: SliceReader,
    slices: Sequence[QueueSlice],
    rows_of_a_task: int,
) -> list[BatchPart]:
    """Deals a batch's slices out to tasks.

    Args:
        spark: the session.
        ledger: knows which attempts have been made.
        group: the group.
        reader: reads the group's messages.
        slices: what the batch covers.
        rows_of_a_task: so many messages are worth a task.
    """
    cores = spark.sparkContext.defaultParallelism
    again = retry_topic(group)
    first = [piece for piece in slices if piece.queue.topic != again]
    retried = [piece for piece in slices if piece.queue.topic == again]
    parts: list[BatchPart] = []
    if first:
        bins = into_bins(first, cores, rows_of_a_task)
        parts.append(BatchPart(ReadTask(reader, bins), len(bins)))
    if retried:
        asking = replace(reader, on_loss=None)  # what is missing, the tasks say
        known = known_attempts(spark, ledger, group, asking, retried)
        fresh = WithoutKnown(ReadTask(reader, [tuple(retried)]), group, known)
        tasks = tasks_for(retried, cores, rows_of_a_task)
        parts.append(BatchPart(RetryShares(fresh, group, tasks), tasks))
    return parts


@dataclass(frozen=True)
class PartRows:
    """Rows of `deliveries` that tasks make of the messages of a batch's parts; a `TaskRows`.

    Attributes:
        spark: the session.
        parts: the messages.
        handle: makes rows of messages.
        columns: those that are kept of them.
    """

    spark: SparkSession
    parts: Sequence[BatchPart]
    handle: ArrowFunction
    columns: Sequence[str]

    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return frame_of(self.spark, self.parts, self.handle, DELIVERIES.ddl).select(*self.columns)

    def through(self, task: Callable[[ArrowFunction], ArrowFunction], ddl: str) -> DataFrame:
        """A frame of what is made of the rows where they are made."""

        def made(part: BatchPart) -> ArrowFunction:
            return task(ReadAndHandleTask(part.read, self.handle))

        return _union(self.spark, self.parts, made, ddl)


def frame_of(
    spark: SparkSession, parts: Sequence[BatchPart], handle: ArrowFunction, schema: str
) -> DataFrame:
    """A frame of what is made of all parts' messages, where they are read."""
    return _union(spark, parts, lambda part: ReadAndHandleTask(part.read, handle), schema)


def _union(
    spark: SparkSession, parts: Sequence[BatchPart], made: Callable[[BatchPart], ArrowFunction], schema: str
) -> DataFrame:
    frames = [per_bin(spark, part.tasks, made(part), schema) for part in parts]
    return reduce(lambda one, other: one.unionAll(other), frames)
