"""Reading a batch where it is handled: slices of queues become tasks that read for themselves.

Owns the cut of a batch into Spark tasks. The source's own DataFrame would carry every body from the Python
worker that reads it through the JVM into a second Python worker that handles it; here one worker reads and
handles, and the JVM sees outcomes only.

Invariants: the slices are those of the range Spark planned, disjoint and whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from delta_tables.task_rows import ArrowFunction
from jobs.group.given_again import NO_OTHER_NAMES, LedgerNames
from jobs.group.map_arrow import map_in_arrow
from jobs.settings import ConsumeSettings
from lakemq.client.endpoint import chosen_ca_file
from store_native.names import retry_topic
from structured_streaming import columns
from structured_streaming.readers import StoreReader
from structured_streaming.source.partitions import QueueSlice, split
from structured_streaming.source.slice_reader import SliceReader

SOURCE_COLUMNS = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "message_id",
    "keys",
    "tags",
    "body",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "properties",
    "flag",
)
"""What is read of a message: all a handler may look at and a retry must carry on."""

Bin = tuple[QueueSlice, ...]


def source_schema() -> StructType:
    """The columns read, as Spark types."""
    offered = {field.name: field for field in (*columns.DEFAULT.fields, *columns.EXTRA.fields)}
    return StructType([offered[name] for name in SOURCE_COLUMNS])


@dataclass(frozen=True)
class GroupReader(SliceReader):
    """Reads messages as the group's ledger calls them.

    Attributes:
        names: what it calls them.
    """

    names: LedgerNames = NO_OTHER_NAMES

    def read_from(self, reader: StoreReader, piece: QueueSlice) -> Iterator[pa.RecordBatch]:
        """Yields the batches of a slice; see `SliceReader`."""
        for batch in super().read_from(reader, piece):
            yield self.names.of(piece.queue, batch)


def reader_of(settings: ConsumeSettings, endpoint: str, retry_timeout_s: float) -> GroupReader:
    """What reads a group's messages.

    The tag filter holds for first deliveries only: what waits on the retry topic was let through once, and
    belongs to the group whatever its filter is now.
    """
    return GroupReader(
        settings.path,
        endpoint,
        source_schema(),
        settings.tags,
        fail_on_data_loss=settings.on_data_loss == "fail",
        retry_timeout_s=retry_timeout_s,
        unfiltered=frozenset([retry_topic(settings.group)]),
        ca_file=chosen_ca_file(None),
    )


def tasks_for(slices: Sequence[QueueSlice], cores: int, rows_of_a_task: int) -> int:
    """How many tasks some slices are worth, at most one per core."""
    return max(1, min(cores, sum(len(piece) for piece in slices) // rows_of_a_task))


def into_bins(slices: Sequence[QueueSlice], cores: int, rows_of_a_task: int) -> list[Bin]:
    """Deals slices out to tasks of about the same number of messages, at most one task per core.

    Large queues are cut when there are fewer queues than tasks; the rows of a queue may then be
    handled by two tasks at the same time, as concurrent mode allows. Below `rows_of_a_task` a second task
    costs more than it saves, and makes a second small file.
    """
    tasks = tasks_for(slices, cores, rows_of_a_task)
    bins: list[list[QueueSlice]] = [[] for _ in range(tasks)]
    lightest = [(0, index) for index in range(tasks)]
    for piece in sorted(split(list(slices), min_partitions=tasks), key=len, reverse=True):
        weight, index = heapq.heappop(lightest)
        bins[index].append(piece)
        heapq.heappush(lightest, (weight + len(piece), index))
    return [tuple(pieces) for pieces in bins if pieces]


@dataclass(frozen=True)
class ReadTask:
    """Turns the numbers of bins into the messages of their slices."""

    reader: SliceReader
    bins: Sequence[Bin]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads one task's slices, one after the other."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for piece in self.bins[number]:
                    yield from self.reader.read(piece)


@dataclass(frozen=True)
class ReadAndHandleTask:
    """Reads and handles in one worker."""

    read: ArrowFunction
    handle: ArrowFunction

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what is made of one task's slices."""
        return self.handle(self.read(numbers))


def per_bin(spark: SparkSession, bins: int, task: ArrowFunction, schema: str) -> DataFrame:
    """A frame with one partition per bin, each made by the task from the bin's number."""
    return map_in_arrow(spark.range(0, bins, 1, bins), task, schema)
