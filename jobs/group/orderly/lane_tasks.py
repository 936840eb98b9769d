"""A batch of an orderly group cut into tasks.

Owns which task has which queues, and the order in which it reads them: what comes again and what was parked
first, by position, then first deliveries.

Invariants: all of a queue is one task's, so all of a lane is; each task has its messages in the order of each
queue, since what comes again is older than what the group has not read yet.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from delta_tables.ledger.location import LedgerLocation
from jobs.group import known_attempts
from jobs.group.batch_parts import BatchPart
from jobs.group.given_again import broker_of
from jobs.group.orderly.lane import SHARDING_KEY, Attempt, Lane, lanes_of, with_carried_key
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.orderly.ledger_lanes import parked_batch
from jobs.group.orderly.waiting import Queue, WaitingLanes
from jobs.group.slice_tasks import Bin, tasks_for
from jobs.redelivery.original_position import original_positions
from jobs.redelivery.wake_up import without_wake_ups
from store_native.names import retry_topic
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader

_IN_ORDER = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")


@dataclass(frozen=True)
class LaneRead:
    """Reads the messages of one task.

    Attributes:
        reader: reads the group's messages, and their sharding keys.
        group: the group.
        first: first deliveries, by task.
        retried: slices of the retry topic, each of which holds messages of all tasks.
        known: attempts that the ledger has.
        task_of: which task has a broker's queue.
        parked: parked messages that go on, by task.
    """

    reader: SliceReader
    group: str
    first: Sequence[Bin]
    retried: Bin
    known: frozenset[known_attempts.Attempt]
    task_of: Mapping[Queue, int]
    parked: Sequence[pa.RecordBatch]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._again(number)
                for piece in self.first[number]:
                    yield from map(with_carried_key, self.reader.read(piece))

    def _again(self, number: int) -> Iterator[pa.RecordBatch]:
        found = [self.parked[number], *self._come_back(number)]
        found = [rows for rows in found if rows.num_rows]
        if found:
            rows = pa.concat_batches(found)
            at = original_positions(rows, self.group)
            order = pa.table({name: getattr(at, name) for name in _IN_ORDER})
            yield rows.take(pc.sort_indices(order, [(name, "ascending") for name in _IN_ORDER]))

    def _come_back(self, number: int) -> Iterator[pa.RecordBatch]:
        for piece in self.retried:
            for read in self.reader.read(piece):
                rows = with_carried_key(without_wake_ups(read), retried=True)
                mine = [
                    attempt not in self.known and self.task_of.get(_queue_of(attempt), 0) == number
                    for attempt in known_attempts.attempts(rows, self.group)
                ]
                yield rows.filter(pa.array(mine, pa.bool_()))


def lane_tasks(
    spark: SparkSession,
    ledger: LedgerLocation,
    group: str,
    reader: SliceReader,
    slices: Sequence[QueueSlice],
    waiting: WaitingLanes,
    most_parked: int,
    rows_of_a_task: int,
) -> tuple[BatchPart, LaneRules]:
    """Cuts a batch.

    Args:
        spark: the session.
        ledger: knows which attempts have been made, and has the parked messages.
        group: the group.
        reader: reads the group's messages.
        slices: what the batch covers.
        waiting: what the group's lanes wait for.
        most_parked: so many parked messages go on at most.
        rows_of_a_task: so many messages are worth a task.

    Returns:
        The batch's tasks, and what they know of the lanes.
    """
    first = [piece for piece in slices if piece.queue.topic != retry_topic(group)]
    retried = tuple(piece for piece in slices if piece.queue.topic == retry_topic(group))
    come_back, known = _come_back(spark, ledger, group, replace(reader, on_loss=None), retried)
    release = waiting.release(come_back, most_parked)
    weights: Counter[Queue] = Counter()
    for piece in first:
        weights[piece.queue] += len(piece)
    for lane, attempts in release.parked.items():
        weights[_queue_of(lane)] += len(attempts)
    weights.update(_queue_of(lane) for lane, _ in come_back)
    tasks = tasks_for(slices, spark.sparkContext.defaultParallelism, rows_of_a_task)
    task_of = dealt_out(weights, min(tasks, max(1, len(weights))))
    count = 1 + max(task_of.values(), default=0)
    bins = [tuple(piece for piece in first if task_of[piece.queue] == n) for n in range(count)]
    parked = [
        {lane: of for lane, of in release.parked.items() if task_of[_queue_of(lane)] == n}
        for n in range(count)
    ]
    with_key = StructType([*reader.schema.fields, StructField(SHARDING_KEY, StringType())])
    read = LaneRead(
        replace(reader, schema=with_key),
        group,
        bins,
        retried,
        known,
        task_of,
        [parked_batch(ledger, group, chosen, spark) for chosen in parked],
    )
    again = frozenset((lane, attempt) for lane, of in release.parked.items() for attempt in of)
    return BatchPart(read, count), LaneRules(release.before, again)


def dealt_out(weights: Mapping[Queue, int], tasks: int) -> dict[Queue, int]:
    """Deals queues out to tasks of about the same number of messages.

    Args:
        weights: messages of each queue.
        tasks: how many tasks.
    """
    lightest = [(0, task) for task in range(tasks)]
    dealt: dict[Queue, int] = {}
    for queue in sorted(weights, key=lambda queue: (-weights[queue], queue)):
        weight, task = heapq.heappop(lightest)
        dealt[queue] = task
        heapq.heappush(lightest, (weight + weights[queue], task))
    return dealt


def _queue_of(at: Lane | known_attempts.Attempt) -> Queue:
    """The broker's queue: messages whose offsets were given again are of the same task."""
    return at[0], broker_of(at[1]), at[2]


def _come_back(
    spark: SparkSession,
    ledger: LedgerLocation,
    group: str,
    reader: SliceReader,
    retried: Collection[QueueSlice],
) -> tuple[set[tuple[Lane, Attempt]], frozenset[known_attempts.Attempt]]:
    """The attempts that come back in a batch, and those of them that the ledger has; reads no bodies."""
    light = known_attempts.light_reader(reader)
    found: dict[known_attempts.Attempt, tuple[Lane, Attempt]] = {}
    for piece in retried:
        for read in light.read(piece):
            rows = without_wake_ups(read)
            lanes = lanes_of(rows, original_positions(rows, group))
            found.update(zip(known_attempts.attempts(rows, group), lanes, strict=True))
    known = known_attempts.known_among(spark, ledger, group, found.keys()) if found else frozenset()
    return {lane for attempt, lane in found.items() if attempt not in known}, known
