"""``spark.read``: one bounded read of the subscribed queues.

Owns the hooks of a batch read.

Invariants: both ends are fixed once, when Spark plans the read, so that every task of the job and every retry
sees the same messages.

Processes: made on the driver, pickled for read().
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from store_native.errors import Unavailable
from structured_streaming import columns, offsets, options, starting_offsets, topic_metadata
from structured_streaming.offsets import TopicMetadata
from structured_streaming.option_names import with_environment
from structured_streaming.readers import StoreReader, open_reader
from structured_streaming.readers.http import shared_client
from structured_streaming.source import data_loss, partitions
from structured_streaming.source.group_progress import GroupProgress
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader


class LakeMQBatchReader(DataSourceReader):
    """Reads message queues once.

    Args:
        given: The options as the user wrote them.
        schema: The columns the query reads.

    Raises:
        LakeMQError: An option or column is wrong.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = options.parse_read(with_environment(given), streaming=False)
        columns.check_chosen(self._options.layout, schema)
        self._slices = SliceReader.of(self._options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Fixes start and end and cuts the read into tasks; called once, on the driver."""
        chosen = self._options
        readers = self._readers()
        parts = [topic_metadata.load(reader, chosen.subscription) for reader in readers]
        whole = parts[0] if len(parts) == 1 else topic_metadata.joined(parts)
        topic_metadata.check_exists(whole, chosen.subscription)
        slices = [
            piece
            for reader, metadata in zip(readers, parts, strict=True)
            for piece in self._slices_of(reader, metadata)
        ]
        return partitions.split(
            sorted(slices, key=lambda piece: piece.queue),
            min_partitions=chosen.min_partitions,
            max_records=chosen.max_records_per_partition,
        )

    def _readers(self) -> list[StoreReader]:
        """The store, or the stores of all brokers; each has to answer."""
        chosen = self._options
        timeout_s = chosen.retry_timeout_ms / 1000
        opened = partial(open_reader, retry_timeout_s=timeout_s, ca_file=chosen.ca_file)
        if chosen.path is not None or chosen.endpoint is None:
            return [opened(chosen.path, chosen.endpoint)]
        client = shared_client(chosen.endpoint, chosen.ca_file)
        unknown = client.never_answered()
        if unknown:
            what = f"{', '.join(unknown)} does not answer: what is there to be read is not known"
            raise Unavailable("SERVICE_NOT_AVAILABLE", what)
        names = sorted(client.brokers()) if client.is_cluster() else [""]
        return [opened(None, chosen.endpoint, broker_name=name) for name in names]

    def _slices_of(self, reader: StoreReader, metadata: TopicMetadata) -> list[QueueSlice]:
        chosen = self._options
        lookups = self._lookups(reader)
        begins = starting_offsets.resolve(chosen.starting, metadata, lookups, "startingOffsets")
        ends = starting_offsets.resolve(chosen.ending, metadata, lookups, "endingOffsets")
        start = offsets.initial(metadata, begins)
        sound = data_loss.reconcile(start, metadata, chosen.subscription.covers)
        data_loss.report(sound.losses, chosen.fail_on_data_loss)
        end = offsets.initial(metadata, ends)
        return partitions.slices_between(start, end, metadata.bounds, reader.store_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one slice; runs on an executor. Spark asks for one partition even if there is none."""
        if not isinstance(partition, partitions.QueueSlice):
            return iter(())
        return self._slices.read(partition)

    def _lookups(self, reader: StoreReader) -> starting_offsets.Lookups:
        def group_offsets() -> Mapping[tuple[str, int], int]:
            chosen = self._options
            assert chosen.group is not None
            assert chosen.endpoint is not None
            client = shared_client(chosen.endpoint, chosen.ca_file).broker(reader.broker_name)
            return GroupProgress(client, chosen.group, chosen.subscription.covers).committed_offsets()

        return starting_offsets.Lookups(
            offset_by_time=lambda queue, at: reader.offset_by_time(queue.topic, queue.queue_id, at),
            group_offsets=group_offsets,
        )
