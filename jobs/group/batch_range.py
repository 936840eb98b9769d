"""What one batch of a group covers.

Owns how the offsets Spark planned become slices of queues.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.group.loss_record import refuse_other_losses
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Bounds, MessageQueue, Offsets, start_in
from structured_streaming.source.data_loss import Loss
from structured_streaming.source.partitions import QueueSlice, slices_between


@dataclass(frozen=True)
class BatchRange:
    """What one batch covers, queue by queue: begin (included) to end (not).

    ``truncated`` is what the broker has given a second time.
    """

    begin: ClusterOffsets
    end: ClusterOffsets
    truncated: tuple[Loss, ...] = ()

    def slices(self, store_id: str) -> list[QueueSlice]:
        """One slice per queue that moved, in queue order."""
        unbounded = {queue: Bounds(0, end) for queue, end in self.end.queues.items()}
        slices = [
            piece
            for name, end in self.end.brokers.items()
            for piece in slices_between(self._begin_at(name), end, unbounded, store_id)
        ]
        return sorted(slices, key=lambda piece: piece.queue)

    def begin_of(self, queue: MessageQueue) -> int:
        """Where the batch begins on a queue."""
        return start_in(self._begin_at(queue.broker_name), self.end.brokers[queue.broker_name], queue)

    def refuse_other_losses(self, group: str) -> None:
        """Refuses to go on where positions of a broker no longer mean the same messages; see loss_record."""
        for name in self.begin.brokers:
            begin = self._begin_at(name)
            refuse_other_losses(begin, self.end.brokers.get(name, Offsets(begin.epoch)), group)

    def _begin_at(self, broker_name: str) -> Offsets:
        begin = self.begin.brokers.get(broker_name)
        return Offsets(self.end.brokers[broker_name].epoch) if begin is None else begin
