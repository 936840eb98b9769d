"""The driver's side of ``readStream``: which messages make the next micro-batch.

Owns the hooks Spark calls; query_run.py has what they ask.

Invariants: progress is reported only for what Spark has finished.

Processes: Spark makes one instance in a process of its own for a query's life (all hooks but read), and
further ones, short-lived, only to pickle read() for the executors; so constructing has no effect outside and
all state is made at the first hook.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from store_native.errors import LakeMQError
from structured_streaming import columns, options
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Offsets
from structured_streaming.option_names import with_environment
from structured_streaming.readers import open_reader
from structured_streaming.readers.http import HttpReader, shared_client
from structured_streaming.retry_timeout import retry_until
from structured_streaming.source import partitions, query_lease
from structured_streaming.source.cluster_run import ANSWER_S, ClusterRun, options_of
from structured_streaming.source.group_progress import GroupProgress
from structured_streaming.source.query_run import QueryRun
from structured_streaming.source.slice_reader import SliceReader
from structured_streaming.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

log = logging.getLogger("lakemq.spark")


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
        self._run: QueryRun | ClusterRun | None = None

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
        run = self._planned()
        if isinstance(run, ClusterRun):
            return run.latest(ClusterOffsets.from_json(start), most).to_json()
        return run.latest(Offsets.from_json(start), most).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Gives the end of every queue for the query's progress, from what latestOffset last saw."""
        return self._planned().backlog()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cuts a batch into tasks; after a restart also a batch planned by an earlier process."""
        run = self._planned()
        if isinstance(run, ClusterRun):
            return run.slices(ClusterOffsets.from_json(start), ClusterOffsets.from_json(end))
        return run.slices(Offsets.from_json(start), Offsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one slice; runs on an executor, from a pickled copy."""
        assert isinstance(partition, partitions.QueueSlice)
        return self._slice_reader().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when a batch is finished; not called after the last one of an AvailableNow run."""
        run = self._planned()
        if isinstance(run, ClusterRun):
            run.done(ClusterOffsets.from_json(end))
        else:
            run.done(Offsets.from_json(end))

    def stop(self) -> None:
        """Gives the group's lease back when the query ends."""
        if self._run is not None:
            self._run.close()

    def _planned(self) -> QueryRun | ClusterRun:
        if self._run is None:
            self._run = _started(self._parsed())
        return self._run

    def _parsed(self) -> options.ReadOptions:
        parsed = options.parse_read(self._given, streaming=True)
        columns.check_chosen(parsed.layout, self._schema)
        return parsed

    def _slice_reader(self) -> SliceReader:
        return SliceReader.of(self._parsed(), self._schema)


def _started(chosen: options.ReadOptions) -> QueryRun | ClusterRun:
    """Opens the brokers; a job, which has reached them before, waits for who is away meanwhile."""
    if not chosen.brokers_join:
        return _start(chosen)
    return retry_until(lambda: _start(chosen), chosen.retry_timeout_ms / 1000, waits=_say_that_it_waits)


def _say_that_it_waits(error: LakeMQError) -> None:
    log.warning("%s; the job's stream waits for it", error)


def _start(chosen: options.ReadOptions) -> QueryRun | ClusterRun:
    shared = None if chosen.endpoint is None else shared_client(chosen.endpoint, chosen.ca_file)
    if chosen.path is None and shared is not None and shared.is_cluster():
        # It waits for no broker: the others are to go on.
        client = Client(chosen.endpoint, timeout_s=ANSWER_S, retries=0, ca_file=chosen.ca_file)
        return ClusterRun(chosen, client, lambda name: _run_over(client.broker(name), options_of(chosen)))
    reader = open_reader(
        chosen.path,
        chosen.endpoint,
        retry_timeout_s=chosen.retry_timeout_ms / 1000,
        ca_file=chosen.ca_file,
    )
    if chosen.group is None or shared is None:
        return QueryRun(chosen, reader)
    return QueryRun(chosen, reader, *_group_at(shared, chosen, chosen.group))


def _run_over(broker: Client, chosen: options.ReadOptions) -> QueryRun:
    """The run over one broker of several."""
    reader = HttpReader(broker)
    at, covers = chosen.join_at_group, chosen.subscription.covers
    join_at = None if at is None else GroupProgress(broker, at, covers).committed_offsets
    if chosen.group is None:
        return QueryRun(chosen, reader, must_exist=False, join_at=join_at)
    group = _group_at(broker, chosen, chosen.group)
    return QueryRun(chosen, reader, *group, must_exist=False, join_at=join_at)


def _group_at(
    client: Client, chosen: options.ReadOptions, group: str
) -> tuple[GroupProgress, GroupLease | None]:
    """The group's progress and lease at one broker; each broker has both for its own queues."""
    lease = query_lease.query_lease(client, group) if chosen.group_lease else None
    return GroupProgress(client, group, chosen.subscription.covers), lease
