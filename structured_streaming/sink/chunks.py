"""Rows of one task become requests: chunks of one topic with a number of rows that is always the same.

Owns what makes the sink exactly-once besides the broker's memory of keys: the borders of the chunks, and a
digest of each one's content in its idempotence key. Pure.

Invariants: the same rows in the same order give the same chunks and keys, whenever their delays end. A task
whose rows came out otherwise when Spark ran it again (a shuffle in another order) can store a message twice,
but never lose one behind an old key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from store_native.sharding import of_sharding_key
from structured_streaming.offsets import illegal
from structured_streaming.sink.columns import DUE_AT

MAX_CHUNK_BYTES = 16 << 20  # of all columns' values; the broker takes requests of 64 MiB by default


@dataclass(frozen=True)
class RowChunk:
    """Rows of one topic for one request.

    Attributes:
        topic: The topic.
        sequence: Counts the chunks of the topic within the task, from 0.
        rows: The message columns.
        digest: Of the rows' content, 16 hex digits.
        part: Which part of a chunk that was halved, a letter per halving; equal halves differ by it.
    """

    topic: str
    sequence: int
    rows: pa.Table
    digest: str
    part: str = ""


class TopicChunks:
    """Cuts the batches of one task into chunks, topic by topic.

    Args:
        topic: The topic of every row; None takes the column ``topic``.
        rows_per_chunk: Rows in each chunk but a topic's last; fewer when they are large.
    """

    def __init__(self, topic: str | None, rows_per_chunk: int) -> None:
        self._topic = topic
        self._rows_per_chunk = rows_per_chunk
        self._waiting: dict[str, list[pa.Table]] = {}
        self._next: dict[str, int] = {}

    def cut(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RowChunk]:
        """Yields the chunks of all batches, the last ones of each topic at the end."""
        for batch in batches:
            for topic, rows in self._by_topic(pa.Table.from_batches([batch])):
                self._waiting.setdefault(topic, []).append(rows)
                yield from self._full(topic)
        for topic, rest in self._waiting.items():
            yield from self._chunks(topic, pa.concat_tables(rest))

    def _by_topic(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self._topic is not None:
            yield self._topic, rows.drop_columns(["topic"]) if "topic" in rows.column_names else rows
            return
        names = rows.column("topic")
        messages = rows.drop_columns(["topic"])
        for topic in pc.unique(names).to_pylist():
            if topic is None:
                raise illegal("a row has no topic: its column topic is null")
            yield topic, messages.filter(pc.equal(names, topic))

    def _full(self, topic: str) -> Iterator[RowChunk]:
        """Yields the chunks that are full, and keeps the rest waiting."""
        waiting = self._waiting[topic]
        count = sum(rows.num_rows for rows in waiting)
        whole = count - count % self._rows_per_chunk
        if whole:
            rows = pa.concat_tables(waiting)
            yield from self._chunks(topic, rows.slice(0, whole))
            self._waiting[topic] = [rows.slice(whole)]

    def _chunks(self, topic: str, rows: pa.Table) -> Iterator[RowChunk]:
        for start in range(0, rows.num_rows, self._rows_per_chunk):
            for part in _small_enough(rows.slice(start, self._rows_per_chunk)):
                sequence = self._next.get(topic, 0)
                self._next[topic] = sequence + 1
                whole = part.combine_chunks()
                yield RowChunk(topic, sequence, whole, digest(whole))


def has_sharding_keys(chunk: RowChunk) -> bool:
    """Says whether a row has one."""
    names = chunk.rows.column_names
    return "sharding_key" in names and chunk.rows.column("sharding_key").null_count < chunk.rows.num_rows


def by_broker(
    chunk: RowChunk, brokers: Sequence[str], order: Sequence[str], otherwise: str
) -> Iterator[tuple[str, RowChunk]]:
    """Cuts a chunk by the brokers of its rows' sharding keys.

    Args:
        chunk: The rows.
        brokers: Those that the sink sends to, by name, in an order that does not change.
        order: Those that keys are spread over, in the order that says which is a key's.
        otherwise: Where rows without a key go.
    """
    if not has_sharding_keys(chunk) or {*order, otherwise} == {otherwise}:
        yield otherwise, chunk
        return
    keys = chunk.rows.column("sharding_key").to_pylist()
    to = [otherwise if key is None else of_sharding_key(key, order) for key in keys]
    for name in sorted(set(to)):
        rows = chunk.rows.filter(pa.array([one == name for one in to])).combine_chunks()
        part = f"{chunk.part}@{brokers.index(name)}"
        yield name, RowChunk(chunk.topic, chunk.sequence, rows, digest(rows), part)


def halves(chunk: RowChunk) -> tuple[RowChunk, RowChunk]:
    """Cuts a chunk the broker calls too large; each half gets a key of its own."""
    middle = chunk.rows.num_rows // 2

    def half(rows: pa.Table, letter: str) -> RowChunk:
        whole = rows.combine_chunks()
        return RowChunk(chunk.topic, chunk.sequence, whole, digest(whole), chunk.part + letter)

    return half(chunk.rows.slice(0, middle), "a"), half(chunk.rows.slice(middle), "b")


def _small_enough(rows: pa.Table) -> Iterator[pa.Table]:
    """Halves rows until they fit one request; depends on nothing but the rows' values."""
    size = sum(value_bytes(part) for column in _content(rows).columns for part in column.chunks)
    if size <= MAX_CHUNK_BYTES or rows.num_rows <= 1:
        yield rows
        return
    middle = rows.num_rows // 2
    yield from _small_enough(rows.slice(0, middle))
    yield from _small_enough(rows.slice(middle))


def value_bytes(values: pa.Array) -> int:
    """The bytes of an array's values, whatever Arrow's layout of them in memory."""
    kind = values.type
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        first, last = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        children = (values.keys, values.items) if pa.types.is_map(kind) else (values.values,)
        return 4 * len(values) + sum(value_bytes(child.slice(first, last - first)) for child in children)
    if pa.types.is_primitive(kind):
        return len(values) * int(kind.bit_width) // 8
    return 4 * len(values) + int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _content(rows: pa.Table) -> pa.Table:
    """The rows without the time at which they are due: with less of its delay left a row is the same one."""
    return rows.drop_columns([DUE_AT]) if DUE_AT in rows.column_names else rows


def digest(rows: pa.Table) -> str:
    """Returns a digest of the rows' values, whatever Arrow's layout of them in memory."""
    state = hashlib.blake2b(digest_size=8)
    held = _content(rows)
    for name, column in zip(held.column_names, held.columns, strict=True):
        state.update(name.encode())
        for part in column.chunks:
            _feed(state, part)
    return state.hexdigest()


def _feed(state: hashlib.blake2b, values: pa.Array) -> None:
    """Feeds lengths before bytes, so that no two columns of different values feed the same bytes."""
    state.update(len(values).to_bytes(8, "little"))
    kind = values.type
    if values.null_count:
        state.update(_numbers(pc.cast(pc.is_null(values), pa.uint8())))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        first, last = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        state.update(_numbers(pc.subtract(values.offsets, first)))
        for child in (values.keys, values.items) if pa.types.is_map(kind) else (values.values,):
            _feed(state, child.slice(first, last - first))
    elif pa.types.is_null(kind):
        return
    elif pa.types.is_primitive(kind):
        state.update(_numbers(pc.fill_null(values.cast(pa.int64()), 0)))
    else:
        state.update(_numbers(pc.fill_null(pc.binary_length(values), -1)))
        state.update(_text(values))


def _numbers(values: pa.Array) -> memoryview:
    """The bytes of an array of numbers."""
    width = values.type.bit_width // 8
    return memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]


def _text(values: pa.Array) -> memoryview:
    """The bytes of all texts or binaries of an array, one behind the other."""
    _, offsets, data = values.buffers()
    if data is None:
        return memoryview(b"")
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    marks = memoryview(offsets).cast("q" if large else "i")
    return memoryview(data)[marks[values.offset] : marks[values.offset + len(values)]]
