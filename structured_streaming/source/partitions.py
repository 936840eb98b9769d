"""Which task reads what: slices of message queues.

Owns the split of a batch into Spark input partitions.

Invariants: the slices of a batch are disjoint, cover what the store still holds of it, and depend on nothing
but the two offsets, the options and what has gone: as long as nothing of it expires, a batch that Spark runs
again (other cores, another machine) has the same slices in the same order, which the sink's idempotence keys
rest on. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from structured_streaming.offsets import Bounds, MessageQueue, Offsets, begins_at


@dataclass(frozen=True)
class QueueSlice(InputPartition):
    """Queue offsets [start, end) of one queue; pickled from the driver to an executor.

    ``store_id`` is the store the driver planned for: another host may hold another one. ``epoch`` is the one
    it was planned in; 0 where that does not matter.
    """

    queue: MessageQueue
    start: int
    end: int
    store_id: str = ""
    epoch: int = 0

    def __len__(self) -> int:
        return self.end - self.start


def slices_between(
    start: Offsets, end: Offsets, held: Mapping[MessageQueue, Bounds], store_id: str = ""
) -> list[QueueSlice]:
    """Returns one slice per queue with something to read between two offsets, in queue order.

    Only queues of ``held`` are read, and only what they still hold: the caller has reported what
    expired, or was given a second time in a later epoch. An end before its start is empty: it is a first
    batch that Spark runs again after the starting position, not yet in any checkpoint, has moved on.
    """
    slices: list[QueueSlice] = []
    for queue in sorted(end.queues):
        if queue not in held:
            continue
        begin = max(begins_at(start, end, queue, held[queue]), held[queue].min_offset)
        common = held[queue].common_end(end.epoch)
        upto = end.queues[queue] if common is None else min(common, end.queues[queue])
        if upto > begin:
            slices.append(QueueSlice(queue, begin, upto, store_id, end.epoch))
    return slices


def split(
    slices: list[QueueSlice], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueSlice]:
    """Cuts slices until none is larger than ``max_records`` and there are about ``min_partitions``.

    As Spark's Kafka source: first by size, then, if there are still too few, each slice into a
    number of parts proportional to its share of the messages.
    """
    if max_records is not None:
        slices = [part for piece in slices for part in _cut(piece, -(-len(piece) // max_records))]
    if min_partitions is not None and 0 < len(slices) < min_partitions:
        total = sum(len(piece) for piece in slices)
        slices = [
            part
            for piece in slices
            for part in _cut(piece, max(1, round(len(piece) * min_partitions / total)))
        ]
    return slices


def _cut(piece: QueueSlice, parts: int) -> list[QueueSlice]:
    parts = min(parts, len(piece))
    marks = [piece.start + len(piece) * i // parts for i in range(parts + 1)]
    return [replace(piece, start=a, end=b) for a, b in itertools.pairwise(marks)]
