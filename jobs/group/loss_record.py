"""What a group's tasks could not read, on its way from the executors to the ledger.

Owns the accumulator tasks add lost ranges to, and which losses a group may go on behind: expired and
damaged ranges (a truncated log: truncated_log.py).

Invariants: a topic that is gone or made again, or a store put back, is refused, since its positions would
give the ledger's keys a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from delta_tables.data_losses import DATA_LOSSES, LostRange, rows, without
from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_arrow_once
from delta_tables.known_keys import rows_within
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import Span
from jobs.group.given_again import NO_OTHER_NAMES, LedgerNames
from store_native.errors import from_code
from store_native.names import retry_topic
from structured_streaming.offsets import MessageQueue, Offsets, same_topic
from structured_streaming.source.data_loss import Loss

_POSITION = ("topic", "broker_name", "queue_id", "queue_offset")


class _Ranges(AccumulatorParam[list[LostRange]]):
    def zero(self, value: list[LostRange]) -> list[LostRange]:
        return []

    def addInPlace(self, value1: list[LostRange], value2: list[LostRange]) -> list[LostRange]:
        value1.extend(value2)
        return value1


class LossRecord:
    """The losses of one batch; pickled with the batch's tasks, which call it."""

    def __init__(
        self, spark: SparkSession, names: LedgerNames = NO_OTHER_NAMES, lost: Iterable[LostRange] = ()
    ) -> None:
        """Makes a record, on the driver.

        Args:
            spark: the session.
            names: what the messages of the batch are called in the ledger.
            lost: ranges that are known already, by those names.
        """
        self._ranges = spark.sparkContext.accumulator([], _Ranges())
        self._names = names
        self._lost = tuple(lost)

    def begin_again(self) -> None:
        """Forgets what the tasks of a run that failed have added: the batch is run again."""
        self._ranges.value = []

    def __call__(self, losses: list[Loss]) -> None:
        """Adds what a task could not read; runs on an executor."""
        found = [
            LostRange(*loss.queue, loss.start, loss.end, loss.reason)
            for loss in losses
            if loss.queue is not None and loss.is_range and loss.end > loss.start
        ]
        if found:
            self._ranges.add(found)

    def write(
        self,
        ledger: LedgerLocation,
        group: str,
        query_id: str,
        batch_id: int,
        app_id: str,
        spark: SparkSession,
    ) -> None:
        """Writes the batch's losses into the ledger, once, without what has a delivery all the same.

        A batch that is read again after its outcomes may find less than it found then.
        """
        found = [*self._lost, *(part for lost in self._ranges.value for part in self._named(lost))]
        lost = rows(
            without(found, _delivered(found, ledger, group, spark)),
            consumer_group=group,
            query_id=query_id,
            batch_id=batch_id,
            recorded_at=datetime.now(UTC),
        )
        if lost.num_rows:
            append_arrow_once(lost, ledger, DATA_LOSSES, app_id=app_id, version=batch_id, spark=spark)

    def _named(self, lost: LostRange) -> list[LostRange]:
        queue = MessageQueue(lost.topic, lost.broker_name, lost.queue_id)
        parts = self._names.parts(queue, lost.start, lost.end)
        return [LostRange(*part.queue, part.start, part.end, lost.reason) for part in parts]


def _delivered(
    found: list[LostRange], ledger: LedgerLocation, group: str, spark: SparkSession
) -> set[tuple[Any, ...]]:
    """The positions within some ranges that have a row in `deliveries`."""
    queues: dict[tuple[str, int], list[LostRange]] = {}
    for part in found:
        queues.setdefault((part.topic, part.queue_id), []).append(part)
    asked = [
        Span(topic, queue_id, min(part.start for part in parts), max(part.end for part in parts) - 1)
        for (topic, queue_id), parts in queues.items()
    ]
    return rows_within(spark, ledger, DELIVERIES, group, asked, _POSITION)


def refuse_other_losses(begin: Offsets, end: Offsets, group: str) -> None:
    """Refuses to go on where positions no longer mean the same messages.

    The group's own retry topic is begun anew where it was made again, and no longer read where it is gone:
    its rows are keyed by the positions of the original messages.

    Raises:
        LakeMQError: OFFSET_ILLEGAL, naming the topic or queue.
    """
    anew: set[str] = set()
    for topic, topic_id in end.topic_ids.items():
        if not same_topic(begin.topic_ids.get(topic), topic_id):
            if topic == retry_topic(group):
                anew.add(topic)
                continue
            raise from_code(
                "OFFSET_ILLEGAL",
                f"topic {topic} was deleted and created again: its positions are in the ledger already. "
                "Use another group or ledger for it",
            )
    for queue, position in begin.queues.items():
        if queue not in end.queues and queue.topic != retry_topic(group):
            raise from_code(
                "OFFSET_ILLEGAL",
                f"{queue}: the group is at {position} but the queue no longer exists; what it still held "
                "is not known, and made again it would give its positions twice. To go on without it, delete "
                "the checkpoint and leave the topic out; use another group or ledger when it is made again",
            )
    for queue, position in end.queues.items():
        if end.epoch < begin.epoch or (position < begin.position(queue) and queue.topic not in anew):
            raise from_code(
                "OFFSET_ILLEGAL",
                f"{queue}: the group is at {begin.position(queue)} but the store was put back to "
                f"{position}: positions would be given twice. Use another group or ledger for it",
            )
