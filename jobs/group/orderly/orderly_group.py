"""The lanes of an orderly group, from batch to batch.

Owns what the driver knows of them: read from the ledger at the start, moved on by the rows that each batch
has committed.

Invariants: nothing is taken for done or parked that the ledger does not say; after any failure it is read
from there anew. A lane whose parked messages wait for nothing gets a batch; what a lane waits for and is lost
is sent again (lost_retries.py).

Threads: the group job's: its start, then Spark's callback thread; between two starts and at the end the main
thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.group.batch_parts import BatchPart
from jobs.group.given_again import at_brokers, broker_of
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.orderly.lane_tasks import lane_tasks
from jobs.group.orderly.ledger_lanes import rows_of_batch, waiting_rows
from jobs.group.orderly.waiting import WaitingLanes
from jobs.group.orderly.wake_ups import WakeUps
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from store_native.errors import LakeMQError, from_code
from store_native.names import retry_topic
from structured_streaming.offsets import MessageQueue
from structured_streaming.source import batch_bound
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader


class OrderlyGroup:
    """The lanes of one group.

    Args:
        spark: the session.
        settings: the group's settings.
        client: the broker.
        bound_file: where the source looks for what the next batch may hold.

    Attributes:
        gone_on: how many parked messages have had their attempt since it was made.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the session runs tasks twice at a time.
    """

    def __init__(
        self, spark: SparkSession, settings: ConsumeSettings, client: Client, bound_file: Path
    ) -> None:
        speculates = spark.conf.get("spark.speculation", "false") or ""
        if speculates.strip().lower() == "true":  # as Spark reads it
            raise from_code(
                "ARGUMENT_ILLEGAL",
                "spark.speculation runs a task twice at a time: orderly mode makes one call after the other",
            )
        self._spark = spark
        self._settings = settings
        self._client = client
        self._bound_file = bound_file
        self._waiting: WaitingLanes | None = None
        self._wake_ups = WakeUps(client, settings.group)
        self._ends: Mapping[MessageQueue, int] | None = None
        self.gone_on = 0

    def begin(self, reached: Mapping[MessageQueue, int]) -> None:
        """Reads from the ledger what the lanes wait for; once the fence is taken.

        Args:
            reached: the offset the group job has reached in each queue.
        """
        settings = self._settings
        self._wake_ups.begin(reached)
        self._waiting = WaitingLanes()
        self._waiting.add(waiting_rows(settings.ledger, settings.group, self._spark))
        self._look_ahead()

    def cut(
        self, reader: SliceReader, slices: Sequence[QueueSlice], rows_of_a_task: int
    ) -> tuple[BatchPart, LaneRules]:
        """Cuts a batch; see `lane_tasks`."""
        assert self._waiting is not None, "the lanes were not read"
        settings = self._settings
        bound = settings.max_messages_per_batch
        most = min(batch_bound.read(self._bound_file) or bound, bound)  # the file may be an earlier run's
        self._note_read(slices)
        return lane_tasks(
            *(self._spark, settings.ledger, settings.group, reader, slices, self._waiting),
            most_parked=most,
            rows_of_a_task=rows_of_a_task,
        )

    def committed(self, query_id: str, batch_id: int, began: datetime) -> None:
        """Takes what a batch has put into the ledger.

        Args:
            query_id: the streaming query.
            batch_id: its batch.
            began: when the batch began.
        """
        assert self._waiting is not None, "the lanes were not read"
        settings = self._settings
        self.gone_on += self._waiting.add(
            rows_of_batch(settings.ledger, settings.group, query_id, batch_id, began, self._spark)
        )
        self._look_ahead()

    def repeated(self, slices: Sequence[QueueSlice]) -> None:
        """Takes note of a batch that was in the ledger at the start already.

        Args:
            slices: what the batch covers.
        """
        self._note_read(slices)
        self._look_ahead()

    @property
    def can_go_on(self) -> bool:
        """Whether a parked message waits for nothing but a batch."""
        return self._waiting is not None and self._waiting.can_go_on

    @property
    def refusal(self) -> LakeMQError | None:
        """Why the broker makes no batch of those that can go on."""
        return self._wake_ups.refusal

    def consumed(self, end: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """How far the group's queues are consumed: to the first message that is parked.

        Args:
            end: how far they are read.
        """
        assert self._waiting is not None, "the lanes were not read"
        parked = self._waiting.first_parked()
        firsts = at_brokers((MessageQueue(*queue), at) for queue, at in parked.items())
        return {queue: min(at, firsts.get(queue, at)) for queue, at in end.items()}

    def read_up_to(self, ends: Mapping[MessageQueue, int]) -> None:
        """Has every start from now on read its topics up to some ends, other queues of them not at all.

        The retry topic is read to its end each time.

        Args:
            ends: of the queues there are.
        """
        again = retry_topic(self._settings.group)
        self._ends = {queue: end for queue, end in ends.items() if queue.topic != again}

    def close(self) -> None:
        """Asks for no more batches."""
        self._wake_ups.close()

    @property
    def paused(self) -> list[MessageQueue]:
        """Queues of which so many messages are parked that no more are read.

        Never the retry topic's: lanes wait for what comes by it.
        """
        if self._waiting is None:
            return []
        counts: Counter[MessageQueue] = Counter()
        for (topic, broker_name, queue_id), parked in self._waiting.parked_by_queue().items():
            counts[MessageQueue(topic, broker_of(broker_name), queue_id)] += parked
        again = retry_topic(self._settings.group)
        full = (queue for queue, parked in counts.items() if parked >= self._settings.max_parked)
        return sorted(queue for queue in full if queue.topic != again)

    def _note_read(self, slices: Sequence[QueueSlice]) -> None:
        if any(piece.queue.topic == retry_topic(self._settings.group) for piece in slices):
            self._wake_ups.end()

    def _look_ahead(self) -> None:
        """Says how far the next batch reads, and makes one where parked messages wait for nothing else."""
        assert self._waiting is not None, "the lanes were not read"
        ends = {**(self._ends or {}), **dict.fromkeys(self.paused, 0)}
        others_only_of = None if self._ends is None else retry_topic(self._settings.group)
        batch_bound.read_up_to(self._bound_file, ends, others_only_of=others_only_of)
        if self._waiting.can_go_on:
            self._wake_ups.ask()
        elif self._wake_ups.refusal is not None:
            self._wake_ups.end()
