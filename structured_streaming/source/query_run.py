"""What the driver knows during one run of a query: where it starts, and what each batch holds.

Owns the order of planning: what the queues hold, what was lost of it, how much of it the next batch takes.

Invariants: every confirmed message is in exactly one batch or its loss is said; a batch planned once is
planned the same again after a restart.

Processes: the driver's; one object for a query's run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakemq.client.group_lease import GroupLease
from store_native.errors import LakeMQError, Unavailable
from structured_streaming import offsets, starting_offsets, topic_metadata
from structured_streaming.offsets import MessageQueue, Offsets, TopicMetadata
from structured_streaming.options import ReadOptions
from structured_streaming.readers import StoreReader
from structured_streaming.source import batch_bound, batch_plan, data_loss, partitions, query_lease
from structured_streaming.source.group_progress import GroupProgress
from structured_streaming.source.read_limit import limit_ends
from structured_streaming.subscription import Subscription


@dataclass(frozen=True)
class Planned:
    """What the next batch may read.

    Attributes:
        start: Where it begins.
        metadata: What the queues hold.
        starts: Where each queue begins.
        ends: How far each may be read.
        gone: Queues that are no longer there.
    """

    start: Offsets
    metadata: TopicMetadata
    starts: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]
    gone: Set[MessageQueue]

    def advance(self, ends: Mapping[MessageQueue, int]) -> Offsets:
        """Returns the end of the batch that reads up to ``ends``."""
        end = offsets.advance(self.start, self.metadata, ends, self.gone)
        return self.start if end == self.start else end


class QueryRun:
    """What the driver knows during one run of a query over one store.

    Args:
        chosen: The query's options.
        reader: The store.
        progress: Receives how far the query's group is; None without a group.
        lease: The group's lease; None when the query takes none.
        must_exist: A topic that is named and not there is refused; else another broker may have it.
        join_at: The committed offsets at which a store begins that comes to a running query.

    Attributes:
        planned_from: Where the batch that was cut into slices last begins.
        truncated: What of that batch, and before it, the broker has given a second time.
    """

    def __init__(
        self,
        chosen: ReadOptions,
        reader: StoreReader,
        progress: GroupProgress | None = None,
        lease: GroupLease | None = None,
        *,
        must_exist: bool = True,
        join_at: Callable[[], Mapping[tuple[str, int], int]] | None = None,
    ) -> None:
        self.options = chosen
        self._must_exist = must_exist
        self._join_at = join_at
        self._at_start: TopicMetadata | None = None
        self._reader = reader
        self._progress = progress
        self._lease = lease
        self._covers = chosen.subscription.covers
        self._initial: Offsets | None = None
        self._joined: Offsets | None = None
        self.planned_from: Offsets | None = None
        self.truncated: list[data_loss.Loss] = []
        self._moving: frozenset[MessageQueue] = frozenset()
        self._frozen: Mapping[MessageQueue, int] | None = None
        self._metadata: TopicMetadata | None = None
        self._checked: Offsets | None = None
        self._end: Offsets | None = None

    def hold_lease(self) -> int | None:
        """Makes sure that the query holds its group, if it takes a lease; returns the fencing epoch."""
        return None if self._lease is None else query_lease.hold(self._lease)

    def freeze(self) -> None:
        """Fixes the ends of an AvailableNow run."""
        self.hold_lease()
        metadata = topic_metadata.load(self._reader, self.options.subscription)
        self._frozen = {queue: bounds.max_offset for queue, bounds in metadata.bounds.items()}

    def initial(self) -> Offsets:
        """Resolves the start once.

        A queue whose start is its end at this moment (latest, or a time nothing is as young as) is
        noted: until the first batch is in the checkpoint that number exists only here.
        """
        if self._initial is None:
            self.hold_lease()
            metadata = self._at_start = topic_metadata.load(self._reader, self.options.subscription)
            self._check_exists(metadata)
            positions = self._positions(metadata)
            self._initial = offsets.initial(metadata, positions)
            if not isinstance(self.options.starting, starting_offsets.Earliest):
                self._moving = frozenset(
                    q for q, p in positions.items() if p >= metadata.bounds[q].max_offset
                )
        return self._initial

    def _positions(self, metadata: TopicMetadata) -> dict[MessageQueue, int]:
        """Where the query begins; a job's start is decided before, and queues may have come since."""
        start = self.options.starting
        if self.options.brokers_join:
            topics_go = self.options.subscription.pattern is not None
            start = starting_offsets.with_new_queues(
                start, metadata, self._reader.broker_name, topics_go=topics_go
            )
        return starting_offsets.resolve(start, metadata, self._lookups(), "startingOffsets")

    def metadata_at_start(self) -> TopicMetadata:
        """Returns what the queues held when the start was resolved."""
        assert self._at_start is not None, "the start was not resolved"
        return self._at_start

    def joins(self) -> Offsets:
        """Returns where a store begins that comes to a running query; see `starting_offsets.joining`."""
        metadata = topic_metadata.load(self._reader, self.options.subscription)
        self._joined = offsets.initial(metadata, self._joining(metadata))
        return self._joined

    def _joining(self, metadata: TopicMetadata) -> dict[MessageQueue, int]:
        starting = self.options.starting
        at_group = self._join_at is not None or isinstance(starting, starting_offsets.GroupPosition)
        committed = (self._join_at or self._lookups().group_offsets)() if at_group else {}
        return starting_offsets.joining(starting, metadata, committed)

    def latest(self, start: Offsets, most: int | None) -> Offsets:
        """Returns the end of the batch that begins at ``start``."""
        planned = self.plan(start)
        file = self.options.batch_bound_file
        most = batch_bound.at_most(file, most)
        ends = batch_bound.within_ends(file, planned.starts, planned.ends)
        return planned.advance(ends if most is None else limit_ends(planned.starts, ends, most))

    def plan(self, start: Offsets) -> Planned:
        """Returns what the batch that begins at ``start`` may read."""
        self.hold_lease()
        # The first batch: nothing is done yet, and nothing about it is in the checkpoint.
        first = start == self._initial and self._metadata is None
        if not first:
            self.done(start)
        metadata = topic_metadata.load(self._reader, self.options.subscription)
        if not self._says_epoch(start):
            data_loss.say_unknown_epoch(start, metadata)
            start = start.in_epoch(metadata.epoch)
        metadata = self._metadata = offsets.not_behind(metadata, start, self._covers)
        sound = self._check(start, metadata)
        start = self._carried(start, metadata)
        ends = {q: max(sound.starts[q], bounds.max_offset) for q, bounds in metadata.bounds.items()}
        if self._frozen is not None:
            ends = {q: max(sound.starts[q], min(end, self._frozen.get(q, 0))) for q, end in ends.items()}
        if first:
            # If this batch has to be planned again, `latest` is further on by then: what came in
            # between would be in no batch. So the first batch reads nothing of such a queue.
            ends.update({q: sound.starts[q] for q in self._moving if q in ends})
        return Planned(start, metadata, sound.starts, ends, sound.gone)

    def latest_unasked(self) -> Offsets:
        """Returns the end of the next batch for a Spark that does not say where it begins.

        It begins where the one before ended. The first batch of a run begins where the checkpoint says,
        which a source does not learn in time: it takes all there is, and what was lost shows in `slices`.
        """
        if self._end is not None:
            self._end = self.latest(self._end, self.options.max_offsets_per_trigger)
        else:
            self.hold_lease()
            metadata = self._metadata = topic_metadata.load(self._reader, self.options.subscription)
            if metadata.from_slave:
                raise Unavailable(
                    "SERVICE_NOT_AVAILABLE",
                    f"the master of broker {self._reader.broker_name} does not answer, and its slave may be "
                    "behind the checkpoint: below Spark 4.2 a run begins when the master answers",
                )
            self._check_exists(metadata)
            self._end = offsets.initial(
                metadata, {queue: b.max_offset for queue, b in metadata.bounds.items()}
            )
        return self._end

    def slices(self, start: Offsets, end: Offsets) -> list[partitions.QueueSlice]:
        """Cuts [start, end) into slices, without what is no longer there."""
        self.hold_lease()
        metadata = self._metadata
        if not (self._says_epoch(start) and self._says_epoch(end)):
            metadata = metadata or topic_metadata.load(self._reader, self.options.subscription)
            # A batch is of the epoch that it was planned in, whatever was promoted since.
            planned_in = end.epoch if self._says_epoch(end) else metadata.epoch
            start, end = (at if self._says_epoch(at) else at.in_epoch(planned_in) for at in (start, end))
        left_out = self._left_out(start, end)
        if metadata is None or left_out or start != self._checked:
            metadata = topic_metadata.load(self._reader, self.options.subscription)
            if left_out:
                others = topic_metadata.load(self._reader, Subscription.of(left_out))
                if start in (self._initial, self._joined):
                    start = self._began(start, others)
                metadata = topic_metadata.of_one_store(metadata, others)
            begin = offsets.planned_from(start, end)
            for position in (begin, end):
                metadata = offsets.not_behind(
                    metadata, position, lambda queue: queue in left_out or self._covers(queue)
                )
            self._check(begin, metadata, also=left_out)
            self._report(data_loss.truncated_plan(start, end, metadata))
        follows = data_loss.truncated_before(start, end, metadata)
        at = {loss.queue: loss.start for loss in follows if loss.queue is not None}
        self.planned_from = replace(start, queues={**start.queues, **at}) if at else start
        self.truncated = follows + data_loss.truncated_plan(start, end, metadata)
        if self.options.plan_file is not None:
            batch_plan.write(Path(self.options.plan_file), self.planned_from, end, self.truncated)
        return partitions.split(
            partitions.slices_between(start, end, offsets.still_valid(end, metadata), self._reader.store_id),
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )

    def backlog(self) -> dict[str, Any] | None:
        """Returns the ends of the queues as last seen."""
        ends = self.ends_seen()
        return None if ends is None else ends.to_json()

    def ends_seen(self) -> Offsets | None:
        """Returns the same as positions."""
        if self._metadata is None:
            return None
        ends = {queue: bounds.max_offset for queue, bounds in self._metadata.bounds.items()}
        return offsets.initial(self._metadata, ends)

    def done(self, position: Offsets) -> None:
        """Reports that all before ``position`` is finished."""
        if self._progress is None:
            return
        try:
            self._progress.report(position, self.hold_lease())
        except LakeMQError as refused:
            # A broker that restarted has forgotten which epoch is the newest until the lease is renewed.
            if self._lease is None or not refused.context.get("renew"):
                raise
            self._progress.report(position, self._lease.renew())

    def close(self) -> None:
        """Ends the run."""
        if self._lease is not None:
            self._lease.release()

    def _says_epoch(self, position: Offsets) -> bool:
        """Whether a position says the log's epoch: an older release by a path did not, and is believed."""
        return position.says_epoch or self.options.path is None

    def _left_out(self, start: Offsets, end: Offsets) -> Set[MessageQueue]:
        """Queues a batch was planned to read whose query was started again without them, the batch open.

        The batch reads them all the same: its end stands in the checkpoint, so no later one would.
        """
        return {
            queue
            for queue, reached in end.queues.items()
            if not self._covers(queue) and reached > offsets.start_in(start, end, queue)
        }

    def _carried(self, start: Offsets, metadata: TopicMetadata) -> Offsets:
        """Returns positions that a batch of a later epoch may carry along for queues the query has no more.

        They are no further than the two logs are one: nobody notices it later, when the epoch is noted.
        """
        others = {queue for queue in start.queues if not self._covers(queue)}
        if metadata.epoch <= start.epoch or not others:
            return start
        there = topic_metadata.load(self._reader, Subscription.of(others))
        if there.epoch < metadata.epoch:
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                f"broker {self._reader.broker_name}: who answers has a log of epoch {there.epoch}, not of "
                f"{metadata.epoch}",
            )
        found = data_loss.reconcile(start, there, lambda queue: False)
        cut = [loss for loss in found.losses if loss.reason == data_loss.TRUNCATED_LOG]
        # Named again, a queue is read anew from the common point; from where it is not known, that is all.
        exact = any(loss.epochs is not None for loss in cut)
        data_loss.report(cut, False, exact and self.options.fail_on_reused_offsets)
        moved = {loss.queue: loss.start for loss in cut if loss.queue is not None}
        return replace(start, queues={**start.queues, **moved})

    def _began(self, start: Offsets, others: TopicMetadata) -> Offsets:
        """Returns where this store's first batch began, with the queues the query has no more."""
        positions = self._joining(others) if start == self._joined else self._positions(others)
        return Offsets(start.epoch, {**others.topic_ids, **start.topic_ids}, {**positions, **start.queues})

    def _check(
        self,
        start: Offsets,
        metadata: TopicMetadata,
        also: Set[MessageQueue] = frozenset(),
    ) -> data_loss.Reconciled:
        sound = data_loss.reconcile(start, metadata, lambda q: q in also or self._covers(q))
        self._report(sound.losses)
        self._checked = start
        return sound

    def _report(self, losses: Iterable[data_loss.Loss]) -> None:
        chosen = self.options
        data_loss.report(losses, chosen.fail_on_data_loss, chosen.fail_on_reused_offsets)

    def _check_exists(self, metadata: TopicMetadata) -> None:
        if self._must_exist:
            topic_metadata.check_exists(metadata, self.options.subscription)

    def _lookups(self) -> starting_offsets.Lookups:
        reader, progress = self._reader, self._progress
        return starting_offsets.Lookups(
            offset_by_time=lambda queue, at: reader.offset_by_time(queue.topic, queue.queue_id, at),
            group_offsets=lambda: {} if progress is None else progress.committed_offsets(),
        )
