"""The driver's side of ``readStream``: which messages make the next micro-batch.

Owns the hooks Spark calls and their order.

Invariants: every confirmed message is in exactly one batch; a batch planned once is planned the same again
after a restart; progress is reported only for what Spark has finished. Spark makes one instance in a
process of its own for a query's life (all hooks but read), and further ones, short-lived, only to pickle
read() for the executors; so constructing has no effect outside and all state is made at the first hook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakemq.client.group_lease import GroupLease
from store_native.errors import LakeMQError
from structured_streaming import columns, offsets, options, starting_offsets, topic_metadata
from structured_streaming.offsets import MessageQueue, Offsets, StoreView
from structured_streaming.option_names import with_environment
from structured_streaming.readers import StoreReader, open_reader
from structured_streaming.readers.http import shared_client
from structured_streaming.source import batch_plan, data_loss, partitions, query_lease
from structured_streaming.source.group_progress import GroupProgress
from structured_streaming.source.read_limit import limit_ends
from structured_streaming.source.slice_reader import SliceReader
from structured_streaming.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)


class LakeMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads message queues as a stream.

    Args:
        given: The options as the user wrote them. They are checked at the first hook, because
            Spark 4.2 hides an error raised while the reader is made behind one of its own.
        schema: The columns the query reads.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = with_environment(given)
        self._schema = schema
        self._plan: _Plan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return LakeMQStreamReader, (self._given, self._schema)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Gives maxOffsetsPerTrigger to Spark; called once at the start, on the driver."""
        most = self._planned().options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes where every queue ends now; called before anything is read."""
        self._planned().freeze()

    def initialOffset(self) -> dict[str, Any]:
        """Gives the start of a query without a checkpoint. Spark asks twice and must get the same."""
        return self._planned().initial().to_json()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Gives the end of the next batch; called at each trigger. All before ``start`` is done.

        Spark 4.0 and 4.1 call it without arguments.
        """
        if start is None:
            return self._planned().latest_unasked().to_json()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planned().latest(Offsets.from_json(start), most).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Gives the end of every queue for the query's progress, from what latestOffset last saw."""
        return self._planned().backlog()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cuts a batch into tasks; after a restart also a batch planned by an earlier process."""
        return self._planned().slices(Offsets.from_json(start), Offsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one slice; runs on an executor, from a pickled copy."""
        assert isinstance(partition, partitions.QueueSlice)
        return self._slice_reader().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when a batch is finished; not called after the last one of an AvailableNow run."""
        self._planned().done(Offsets.from_json(end))

    def stop(self) -> None:
        """Gives the group's lease back when the query ends."""
        if self._plan is not None:
            self._plan.close()

    def _planned(self) -> _Plan:
        if self._plan is None:
            self._plan = _Plan(self._parsed())
        return self._plan

    def _parsed(self) -> options.ReadOptions:
        parsed = options.parse_read(self._given, streaming=True)
        columns.check_chosen(parsed.layout, self._schema)
        return parsed

    def _slice_reader(self) -> SliceReader:
        parsed = self._parsed()
        return SliceReader(
            parsed.path,
            parsed.endpoint,
            self._schema,
            parsed.tags,
            parsed.fail_on_data_loss,
            patience_s=parsed.retry_timeout_ms / 1000,
        )


class _Plan:
    """What the driver knows during one run of a query."""

    def __init__(self, chosen: options.ReadOptions) -> None:
        self.options = chosen
        self._reader: StoreReader = open_reader(
            chosen.path, chosen.endpoint, patience_s=chosen.retry_timeout_ms / 1000
        )
        self._covers = chosen.subscription.covers
        self._progress: GroupProgress | None = None
        self._lease: GroupLease | None = None
        if chosen.group is not None and chosen.endpoint is not None:
            client = shared_client(chosen.endpoint)
            self._progress = GroupProgress(client, chosen.group, self._covers)
            self._lease = query_lease.query_lease(client, chosen.group) if chosen.group_lease else None
        self._initial: Offsets | None = None
        self._moving: frozenset[MessageQueue] = frozenset()
        self._frozen: Mapping[MessageQueue, int] | None = None
        self._view: StoreView | None = None
        self._checked: Offsets | None = None
        self._end: Offsets | None = None

    def freeze(self) -> None:
        """Fixes the ends of an AvailableNow run."""
        self._hold_lease()
        view = topic_metadata.load(self._reader, self.options.subscription)
        self._frozen = {queue: bounds.max_offset for queue, bounds in view.bounds.items()}

    def initial(self) -> Offsets:
        """Resolves the start once.

        A queue whose start is its end at this moment (latest, or a time nothing is as young as) is
        noted: until the first batch is in the checkpoint that number exists only here.
        """
        if self._initial is None:
            self._hold_lease()
            view = topic_metadata.load(self._reader, self.options.subscription)
            topic_metadata.check_exists(view, self.options.subscription)
            start = self.options.starting
            positions = starting_offsets.resolve(start, view, self._lookups(), "startingOffsets")
            self._initial = offsets.initial(view, positions)
            if not isinstance(start, starting_offsets.Earliest):
                self._moving = frozenset(q for q, p in positions.items() if p >= view.bounds[q].max_offset)
        return self._initial

    def latest(self, start: Offsets, most: int | None) -> Offsets:
        """Returns the end of the batch that begins at ``start``."""
        self._hold_lease()
        # The first batch: nothing is done yet, and nothing about it is in the checkpoint.
        first = start == self._initial and self._view is None
        if not first:
            self.done(start)
        view = self._view = topic_metadata.load(self._reader, self.options.subscription)
        sound = self._check(start, view)
        ends = {q: max(sound.starts[q], bounds.max_offset) for q, bounds in view.bounds.items()}
        if self._frozen is not None:
            ends = {q: max(sound.starts[q], min(end, self._frozen.get(q, 0))) for q, end in ends.items()}
        if first:
            # If this batch has to be planned again, `latest` is further on by then: what came in
            # between would be in no batch. So the first batch reads nothing of such a queue.
            ends.update({q: sound.starts[q] for q in self._moving if q in ends})
        if most is not None:
            ends = limit_ends(sound.starts, ends, most)
        end = offsets.advance(start, view, ends, sound.gone)
        return start if end == start else end

    def latest_unasked(self) -> Offsets:
        """Returns the end of the next batch for a Spark that does not say where it begins.

        It begins where the one before ended. The first batch of a run begins where the checkpoint says,
        which a source does not learn in time: it takes all there is, and what was lost shows in `slices`.
        """
        if self._end is not None:
            self._end = self.latest(self._end, self.options.max_offsets_per_trigger)
        else:
            self._hold_lease()
            view = self._view = topic_metadata.load(self._reader, self.options.subscription)
            topic_metadata.check_exists(view, self.options.subscription)
            self._end = offsets.initial(view, {queue: b.max_offset for queue, b in view.bounds.items()})
        return self._end

    def slices(self, start: Offsets, end: Offsets) -> list[partitions.QueueSlice]:
        """Cuts [start, end) into slices, without what is no longer there."""
        self._hold_lease()
        view = self._view
        if view is None or start != self._checked:
            view = topic_metadata.load(self._reader, self.options.subscription)
            self._check(start, view)
        if self.options.plan_file is not None:
            batch_plan.write(Path(self.options.plan_file), start, end)
        return partitions.split(
            partitions.slices_between(start, end, view.bounds, self._reader.store_id),
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )

    def backlog(self) -> dict[str, Any] | None:
        """Returns the ends of the queues as last seen."""
        if self._view is None:
            return None
        ends = {queue: bounds.max_offset for queue, bounds in self._view.bounds.items()}
        return offsets.initial(self._view, ends).to_json()

    def done(self, position: Offsets) -> None:
        """Reports that all before ``position`` is finished."""
        if self._progress is None:
            return
        try:
            self._progress.report(position, self._hold_lease())
        except LakeMQError as refused:
            # A broker that restarted has forgotten which epoch is the newest until the lease is renewed.
            if self._lease is None or not refused.context.get("renew"):
                raise
            self._progress.report(position, self._lease.renew())

    def close(self) -> None:
        """Ends the run."""
        if self._lease is not None:
            self._lease.release()

    def _check(self, start: Offsets, view: StoreView) -> data_loss.Reconciled:
        sound = data_loss.reconcile(start, view, self._covers)
        data_loss.report(sound.losses, self.options.fail_on_data_loss)
        self._checked = start
        return sound

    def _hold_lease(self) -> int | None:
        return None if self._lease is None else query_lease.hold(self._lease)

    def _lookups(self) -> starting_offsets.Lookups:
        reader, progress = self._reader, self._progress
        return starting_offsets.Lookups(
            offset_by_time=lambda queue, at: reader.offset_by_time(queue.topic, queue.queue_id, at),
            group_offsets=lambda: {} if progress is None else progress.committed_offsets(),
        )
