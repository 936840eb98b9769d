"""Attempts at a batch's retried messages that the ledger has: they are not handled again.

Owns how they are found and left out, and with them what is on the retry topic and is no message. A broker
that crashed may put a delayed message twice, and two drivers may each have sent it back; the ledger has one
row per attempt.

Invariants: the batch's own origins are read first, on the driver and without bodies, and only they are
looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.known_keys import known_rows
from delta_tables.ledger.location import LedgerLocation
from jobs.group.slice_tasks import ReadTask
from jobs.redelivery.original_position import original_positions
from jobs.redelivery.wake_up import without_wake_ups
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader

Attempt = tuple[str, str, int, int, int]
"""topic, broker_name, queue_id and queue_offset of the original message, and the attempt at it."""

ORIGIN_COLUMNS = ("topic", "broker_name", "queue_id", "queue_offset", "reconsume_times", "properties")


def known_attempts(
    spark: SparkSession, ledger: LedgerLocation, group: str, reader: SliceReader, slices: Sequence[QueueSlice]
) -> frozenset[Attempt]:
    """Which attempts of some slices of the retry topic have a row already.

    Args:
        spark: the session, for a ledger in a catalog.
        ledger: the ledger.
        group: the group.
        reader: reads the group's messages.
        slices: the slices.
    """
    light = light_reader(reader)
    asked: set[Attempt] = set()
    for piece in slices:
        for batch in light.read(piece):
            asked.update(attempts(batch, group))
    return known_among(spark, ledger, group, asked)


def light_reader(reader: SliceReader) -> SliceReader:
    """Reads of each message no more than its original position and attempt, and its properties."""
    fields = {field.name: field for field in reader.schema.fields}
    return replace(reader, schema=StructType([fields[name] for name in ORIGIN_COLUMNS]))


def known_among(
    spark: SparkSession, ledger: LedgerLocation, group: str, asked: Collection[Attempt]
) -> frozenset[Attempt]:
    """Which of some attempts have a row already; arguments as for `known_attempts`."""
    found = known_rows(
        spark,
        ledger,
        DELIVERIES,
        group,
        (attempt[:4] for attempt in asked),
        DELIVERY_KEY[1:],
        attempts_from=2,
    )
    return frozenset(found.intersection(asked))


def attempts(batch: pa.RecordBatch, group: str) -> list[Attempt]:
    """The attempt each row of the retry topic is."""
    at = original_positions(batch, group)
    columns = (at.topic, at.broker_name, at.queue_id, at.queue_offset, at.attempt)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@dataclass(frozen=True)
class WithoutKnown:
    """Reads as another task does, and leaves out attempts the ledger has."""

    read: ReadTask
    group: str
    known: frozenset[Attempt]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the other rows of one task's slices."""
        for read in self.read(numbers):
            batch = without_wake_ups(read)
            if self.known:
                fresh = [attempt not in self.known for attempt in attempts(batch, self.group)]
                yield batch.filter(pa.array(fresh, pa.bool_()))
            else:
                yield batch
