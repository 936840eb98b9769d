"""One task's work: a slice of a queue becomes Arrow batches in the query's columns.

Owns the read loop on executors.

Invariants: exactly the messages of [start, end) that the tags let through are given, in queue order, once;
what is missing or damaged is an error or a logged count; of a log whose epoch is another one than the plan's
nothing is given behind the common point.

Processes: made on the driver, pickled inside the readers (it holds values only), run on executors.

Threads: the task's; one more fetches the next chunk of a reader that reads ahead, and ends with the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql.types import StructType

from store_native.errors import InternalError, Unavailable
from structured_streaming.options import ReadOptions
from structured_streaming.readers import Chunk, StoreReader, open_reader
from structured_streaming.retry_timeout import RETRY_TIMEOUT_MS, retry_until
from structured_streaming.source import data_loss
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.spark_versions import arrow_schema


@dataclass(frozen=True)
class SliceReader:
    """Reads slices of one store.

    Attributes:
        path, endpoint: Where the store is; see :func:`structured_streaming.readers.open_reader`.
        schema: The query's columns, in their order.
        tags: The tag filter.
        fail_on_data_loss, fail_on_reused_offsets: Which missing messages are an error, see `ReadOptions`.
        on_loss: Receives what is missing while that is no error; pickled along.
        retry_timeout_s: How long a task waits for a broker that is away.
        unfiltered: Topics that are read whole, whatever the tags.
        ca_file: See ``path``.
    """

    path: str | None
    endpoint: str | None
    schema: StructType
    tags: str
    fail_on_data_loss: bool
    on_loss: Callable[[list[data_loss.Loss]], None] | None = None
    retry_timeout_s: float = RETRY_TIMEOUT_MS / 1000
    unfiltered: frozenset[str] = frozenset()
    ca_file: str | None = None
    fail_on_reused_offsets: bool = False

    @classmethod
    def of(cls, chosen: ReadOptions, schema: StructType) -> Self:
        """Returns the reader of a query, by its options and columns."""
        return cls(
            chosen.path,
            chosen.endpoint,
            schema,
            chosen.tags,
            chosen.fail_on_data_loss,
            retry_timeout_s=chosen.retry_timeout_ms / 1000,
            ca_file=chosen.ca_file,
            fail_on_reused_offsets=chosen.fail_on_reused_offsets,
        )

    def read(self, piece: QueueSlice) -> Iterator[pa.RecordBatch]:
        """Yields the slice's rows in batches of about 10,000."""
        # The driver has been there already: a store that cannot be opened now is one that restarts.
        reader = retry_until(
            lambda: open_reader(
                self.path,
                self.endpoint,
                piece.store_id,
                retry_timeout_s=self.retry_timeout_s,
                broker_name=piece.queue.broker_name,
                ca_file=self.ca_file,
            ),
            self.retry_timeout_s,
        )
        return self.read_from(reader, piece)

    def read_from(self, reader: StoreReader, piece: QueueSlice) -> Iterator[pa.RecordBatch]:
        """As read, from a store that is open."""
        target = arrow_schema(self.schema)
        chunks = self._ahead(reader, piece) if reader.ahead else self._chunks(reader, piece)
        for chunk in chunks:
            if chunk.batch is not None:
                yield conform(chunk.batch, target)

    def _chunks(self, reader: StoreReader, piece: QueueSlice) -> Iterator[Chunk]:
        offset = piece.start
        while offset < piece.end:
            chunk = self._fetch(reader, piece, offset)
            yield chunk
            offset = self._next(piece, offset, chunk)

    def _ahead(self, reader: StoreReader, piece: QueueSlice) -> Iterator[Chunk]:
        """As _chunks, and fetches the next chunk while Spark takes the current one."""
        with ThreadPoolExecutor(1, thread_name_prefix="lakemq-read-ahead") as pool:
            pending = pool.submit(self._fetch, reader, piece, piece.start)
            offset = piece.start
            while True:
                chunk = pending.result()
                offset = self._next(piece, offset, chunk)
                if offset < piece.end:
                    pending = pool.submit(self._fetch, reader, piece, offset)
                yield chunk
                if offset >= piece.end:
                    return

    def _fetch(self, reader: StoreReader, piece: QueueSlice, offset: int) -> Chunk:
        return retry_until(lambda: self._of_the_plan(reader, piece, offset), self.retry_timeout_s)

    def _of_the_plan(self, reader: StoreReader, piece: QueueSlice, offset: int) -> Chunk:
        """Reads what the plan meant: a slave may have been promoted since, or answer for its master.

        Raises:
            Unavailable: Who answers has a log that ends in an earlier epoch.
        """
        chunk = self._read(reader, piece, offset, piece.end)
        if not chunk.epoch or not piece.epoch or chunk.epoch == piece.epoch:
            return chunk
        if chunk.epoch < piece.epoch:
            what = f"broker {piece.queue.broker_name}: its master is away, and who answers has a log of epoch"
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{what} {chunk.epoch}, not of {piece.epoch}")
        held = reader.bounds(piece.queue.topic).get(piece.queue.queue_id)
        upto = max(offset + 1, min(piece.end, chunk.next_offset))
        past = None if held is None else held.past(upto, piece.epoch)
        if past is None:
            return chunk
        common = past.first_offset
        if past.at_or_before or common <= offset:
            return chunk._replace(status=data_loss.TRUNCATED_LOG, batch=None, next_offset=piece.end)
        # All before the common point is the same in both epochs.
        return self._read(reader, piece, offset, common)._replace(max_offset=piece.end)

    def _read(self, reader: StoreReader, piece: QueueSlice, offset: int, end: int) -> Chunk:
        queue = piece.queue
        tags = "*" if queue.topic in self.unfiltered else self.tags
        return reader.read(queue.topic, queue.queue_id, offset, end, self.schema.fieldNames(), tags)

    def _next(self, piece: QueueSlice, offset: int, chunk: Chunk) -> int:
        """Returns where to read on, after checking that nothing was left out."""
        queue = piece.queue
        losses = [data_loss.damaged(queue, a, b) for a, b in chunk.damaged]
        following = chunk.next_offset
        if chunk.status == data_loss.TRUNCATED_LOG:
            epochs = (piece.epoch, chunk.epoch)
            if offset < chunk.min_offset:
                losses = [
                    data_loss.truncated_somewhere(
                        queue, chunk.min_offset, piece.end, *epochs, chunk.min_offset
                    )
                ]
            else:
                losses = [data_loss.truncated(queue, offset, piece.end, *epochs)]
        elif chunk.status == "OFFSET_ILLEGAL" and chunk.min_offset > offset:
            # Retention ran between planning and reading.
            following = min(chunk.min_offset, piece.end)
            losses.append(data_loss.expired(queue, offset, following))
        elif chunk.max_offset < piece.end:
            losses.append(data_loss.cut_off(queue, piece.end, chunk.max_offset))
            following = piece.end if chunk.status in ("OFFSET_ILLEGAL", "NO_NEW_MSG") else following
        data_loss.report(losses, self.fail_on_data_loss, self.fail_on_reused_offsets)
        if losses and self.on_loss is not None:
            self.on_loss(losses)
        if following <= offset:
            raise InternalError(
                "SYSTEM_ERROR", f"{queue}: the read at {offset} answered {chunk.status} and did not move on"
            )
        return following


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Gives a batch exactly the schema Spark expects, without copying what already fits."""
    if batch.schema.equals(target):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)
