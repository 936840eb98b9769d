"""The lanes of an orderly group, from batch to batch.

Owns what the driver knows of them: read from the ledger at the start, moved on by the rows that each batch
has committed.

Invariants: nothing is taken for done or parked that the ledger does not say; after any failure it is read
from there anew. A lane whose parked messages wait for nothing gets a batch; what a lane waits for and is lost
is sent again at the next start.

Threads: the group job's: its start, then Spark's callback thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.group.batch_parts import BatchPart
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.orderly.lane_tasks import lane_tasks
from jobs.group.orderly.ledger_lanes import rows_of_batch, waiting_rows
from jobs.group.orderly.lost_retries import send_lost_again
from jobs.group.orderly.waiting import WaitingLanes
from jobs.redelivery import wake_up
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from store_native.errors import from_code
from store_native.names import retry_topic
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

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the session runs tasks twice at a time.
    """

    def __init__(
        self, spark: SparkSession, settings: ConsumeSettings, client: Client, bound_file: Path
    ) -> None:
        if spark.conf.get("spark.speculation", "false") == "true":
            raise from_code(
                "ARGUMENT_ILLEGAL",
                "spark.speculation runs a task twice at a time: orderly mode makes one call after the other",
            )
        self._spark = spark
        self._settings = settings
        self._client = client
        self._bound_file = bound_file
        self._waiting: WaitingLanes | None = None
        self._woken = False

    def begin(self) -> None:
        """Reads from the ledger what the lanes wait for; once the fence is taken."""
        settings = self._settings
        send_lost_again(
            self._spark, settings.ledger, settings.group, self._client.endpoint, datetime.now(UTC)
        )
        self._woken = False
        self._waiting = WaitingLanes()
        self._waiting.add(waiting_rows(settings.ledger, settings.group, self._spark))
        self._look_ahead()

    def cut(
        self, reader: SliceReader, slices: Sequence[QueueSlice], rows_of_a_task: int
    ) -> tuple[BatchPart, LaneRules]:
        """Cuts a batch; see `lane_tasks`."""
        assert self._waiting is not None, "the lanes were not read"
        settings = self._settings
        most = batch_bound.read(self._bound_file) or settings.max_messages_per_batch
        if any(piece.queue.topic == retry_topic(settings.group) for piece in slices):
            self._woken = False
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
        self._waiting.add(
            rows_of_batch(settings.ledger, settings.group, query_id, batch_id, began, self._spark)
        )
        self._look_ahead()

    @property
    def paused(self) -> list[tuple[str, str, int]]:
        """Queues of which so many messages are parked that no more are read.

        Never the retry topic's: lanes wait for what comes by it.
        """
        assert self._waiting is not None, "the lanes were not read"
        counts = self._waiting.parked_by_queue()
        full = (queue for queue, parked in counts.items() if parked >= self._settings.max_parked)
        return sorted(queue for queue in full if queue[0] != retry_topic(self._settings.group))

    def _look_ahead(self) -> None:
        assert self._waiting is not None, "the lanes were not read"
        batch_bound.pause(self._bound_file, self.paused)
        if self._waiting.can_go_on and not self._woken:
            self._woken = wake_up.send(self._client, self._settings.group)
