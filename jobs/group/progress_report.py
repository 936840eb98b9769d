"""How far a batch has brought its group: a row per queue in `consumer_offsets`, and the brokers' offsets.

Owns what is reported of a batch that is in the ledger.

Invariants: a batch is reported after the ledger's commit, and in `consumer_offsets` once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.idempotent import append_arrow_once
from jobs.group.batch_range import BatchRange
from jobs.group.given_again import NO_END, NO_OTHER_NAMES, LedgerNames
from jobs.group.named_batch import NamedBatch
from jobs.group.offset_report import OffsetReport
from jobs.group.orderly.orderly_group import OrderlyGroup
from jobs.runtime.group_brokers import GroupBrokers
from jobs.settings import ConsumeSettings
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from structured_streaming.offsets import MessageQueue


class ProgressReport:
    """Reports one group's batches.

    Args:
        spark: the session.
        settings: the group's settings.
        brokers: those it reads.
        lease: its lease; without one, in broadcast mode, no broker is told.
        lanes: the group's lanes, in orderly mode: what they hold back is not consumed.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: ConsumeSettings,
        brokers: GroupBrokers,
        lease: GroupLease | GroupLeases | None,
        lanes: OrderlyGroup | None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._brokers = brokers
        self._lanes = lanes
        self._told = None if lease is None else OffsetReport(settings.group, brokers, lease)

    def report(
        self, batch: NamedBatch, covered: BatchRange, names: LedgerNames = NO_OTHER_NAMES
    ) -> int | None:
        """Reports a batch.

        Args:
            batch: the batch.
            covered: what it covers.
            names: what the messages of the queues are called in the ledger.

        Returns:
            How many messages the group is behind, where a broker says it.

        Raises:
            InvalidRequest: LEASE_CONFLICT, the group is another job's.
        """
        settings = self._settings
        maxima = self._brokers.max_offsets(piece.queue for piece in covered.slices(""))
        progress = [
            QueueProgress(
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                covered.begin_of(queue),
                end,
                maxima.get(queue),
                covered.end.brokers[queue.broker_name].topic_ids.get(queue.topic),
                covered.end.brokers[queue.broker_name].epoch,
            )
            for queue, end in covered.end.queues.items()
        ]
        found = rows(
            [named for queue in progress if queue.has_moved for named in by_names(queue, names)],
            consumer_group=batch.group,
            subscription=settings.tags,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            recorded_at=datetime.now(UTC),
        )
        append_arrow_once(
            found,
            settings.ledger,
            CONSUMER_OFFSETS,
            app_id=batch.application,
            version=batch.batch_id,
            spark=self._spark,
        )
        if self._told is not None:
            # A batch that was planned before an unclean promotion may end behind what there is now.
            end = {queue: min(at, maxima.get(queue, at)) for queue, at in covered.end.queues.items()}
            self._told.commit(end if self._lanes is None else self._lanes.consumed(end))
        known = [row.max_offset - row.next_offset for row in progress if row.max_offset is not None]
        return sum(known) if known else None


def by_names(queue: QueueProgress, names: LedgerNames) -> list[QueueProgress]:
    """Cuts what a batch has done of a queue into what has one name in the ledger each.

    What is left of the queue is told by the name that is reached. Nothing is left of the others: they are
    behind it, or they were handled when they were other messages and come again by a name of their own.
    """
    found: list[QueueProgress] = []
    at = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
    for part in names.parts(at, queue.begin_offset, NO_END):
        next_offset = min(max(part.start, queue.next_offset), part.end)
        is_reached = part.start <= queue.next_offset < part.end
        found.append(
            replace(
                queue,
                broker_name=part.queue.broker_name,
                begin_offset=part.start,
                next_offset=next_offset,
                max_offset=queue.max_offset if is_reached else next_offset,
            )
        )
    return found
