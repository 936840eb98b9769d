"""Sends what verdicts send, and says what was sent.

Owns the idempotence keys of these messages, and the rows of `sent_messages`.

Invariants: the borders of the requests follow from rows of `deliveries` of one batch of the group job, which
are there whole or not at all, and not from what was sent of them: whoever sends the rest, after whatever
crash, asks for the same, and the broker stores it once. A row is yielded when its message is stored. A lane
ends at the first request that is not taken: nothing overtakes in it.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from jobs.outbox.lane_stop import LaneStop
from store_native.errors import LakeMQError
from structured_streaming.options import WriteOptions
from structured_streaming.sink.chunks import RowChunk, TopicChunks, digest, halves
from structured_streaming.sink.sender import Destination, PartOfChunk, client_of

Unit = tuple[str, int, int]
"""What is sent under keys of its own: the group job's query and batch, and the lane."""

PASS_S = 10.0
"""How long a lane sends before what it sent is recorded."""

_UNIT = ("query_id", "batch_id", "lane")
_MESSAGE = ("topic", "body", "keys", "tags", "properties", "sharding_key", "delay_level", "message_id")
_OF_MESSAGE = {"sent_message_id": "message_id", "sent_keys": "keys", "sent_tags": "tags"}
_CAUSE = "cause."
"""Before the names of the columns that say which verdict sends a message."""
_CAUSES = (
    *("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt"),
    *("message_id", "query_id", "batch_id", "number"),
)
_IS_SENT, _IS_GIVEN_UP = "is_sent", "is_given_up"


class _Stopped(Exception):
    """Ends a lane."""

    def __init__(self, stop: LaneStop) -> None:
        super().__init__(stop.why)
        self.stop = stop


@dataclass(frozen=True)
class SendTask:
    """Sends the messages of rows that are sorted by unit and position.

    Attributes:
        group: the group.
        options: where they go; the brokers are the same at each run.
        stopped: gets what ended a lane before its end.
        pass_s: how long a lane sends before it ends between two requests.
    """

    group: str
    options: WriteOptions
    stopped: Callable[[LaneStop], None]
    pass_s: float = PASS_S

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends one task's rows and yields what was sent, request by request.

        A broker that refuses, or is away for too long, ends the lane and is no error of the task: what was
        sent before is in the rows.
        """
        try:
            yield from self._sent(batches)
        except _Stopped as ended:
            self.stopped(ended.stop)

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        until = time.monotonic() + self.pass_s
        pieces = (piece for batch in batches for piece in _pieces(batch))
        with ExitStack() as stack:
            to: Destination | None = None  # none is made for a lane without rows
            for unit, of_unit in itertools.groupby(pieces, key=lambda piece: piece[0]):
                to = to or Destination(stack.enter_context(client_of(self.options)), self.options)
                prefix = self._key(unit)
                chunks = TopicChunks(None, self.options.rows_per_request)
                for chunk in chunks.cut(messages for _, messages in of_unit):
                    for taken in _requests(to, chunk, prefix):
                        yield _rows(chunk.topic, taken)
                        if time.monotonic() >= until:
                            raise _Stopped(LaneStop("time"))

    def _key(self, unit: Unit) -> str:
        """The begin of a unit's keys: short, since a group's name may be as long as a key."""
        text = "\n".join(map(str, (self.group, *unit)))
        return f"outbox/{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _requests(to: Destination, chunk: RowChunk, prefix: str) -> Iterator[pa.Table]:
    """Sends what waits of a chunk, and yields it request by request.

    Raises:
        _Stopped: A request was not taken.
    """
    waits = _waiting(chunk)
    if waits.num_rows == 0:
        return
    try:
        parts = list(to.parts(chunk, prefix))
    except LakeMQError as error:
        raise _Stopped(LaneStop.of(error, _named(chunk.topic, waits, error))) from error
    for part in parts:
        yield from _halves(to, part, part.rows, prefix)


def _halves(to: Destination, part: PartOfChunk, rows: RowChunk, prefix: str) -> Iterator[pa.Table]:
    """Sends what waits of these rows of a part: whole, or in the halves in which some was sent before."""
    waits = _waiting(rows)
    if waits.num_rows == 0:
        return
    if not pc.any(rows.rows.column(_IS_SENT)).as_py():
        messages = waits.select([column for column in _MESSAGE if column != "topic"]).combine_chunks()
        request = RowChunk(rows.topic, rows.sequence, messages, digest(messages), rows.part)
        try:
            to.send_whole(part, request, prefix)
        except LakeMQError as error:
            if error.code != "REQUEST_TOO_LARGE" or waits.num_rows == 1:
                raise _Stopped(LaneStop.of(error, _named(rows.topic, waits, error))) from error
        else:
            yield waits
            return
    for half in halves(rows):
        yield from _halves(to, part, half, prefix)


def _waiting(chunk: RowChunk) -> pa.Table:
    done = pc.or_(chunk.rows.column(_IS_SENT), chunk.rows.column(_IS_GIVEN_UP))
    return chunk.rows.filter(pc.invert(done))


def _named(topic: str, waits: pa.Table, error: LakeMQError) -> dict[str, Any]:
    """The message that a broker names in its refusal, else the first of the request."""
    index = error.context.get("index")
    row = waits.slice(index if isinstance(index, int) and 0 <= index < waits.num_rows else 0, 1)
    columns: dict[str, Any] = _recorded(topic, row).select(_refused_columns()).to_pylist()[0]
    return columns


def _refused_columns() -> list[str]:
    return [name for name in REFUSED_SENDS.column_names if name in SENT_MESSAGES.column_names]


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[Unit, pa.RecordBatch]]:
    """The messages of consecutive rows of one unit."""
    units = list(zip(*(batch.column(name).to_pylist() for name in _UNIT), strict=True))
    start = 0
    for unit, rows in itertools.groupby(units):
        count = sum(1 for _ in rows)
        yield unit, _messages(batch.slice(start, count))
        start += count


def _messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    outbox = rows.column("outbox")
    each = outbox.flatten()
    decided = pc.list_parent_indices(outbox)
    lengths = pc.list_value_length(outbox).to_pylist()
    numbers = [number for length in lengths for number in range(1, length + 1)]
    columns = {name: pc.struct_field(each, name) for name in _MESSAGE}
    for name in _CAUSES[:-1]:
        columns[_CAUSE + name] = rows.column(name).take(decided)
    columns[f"{_CAUSE}number"] = pa.array(numbers, pa.int32())
    for flag, of_row in ((_IS_SENT, "sent_numbers"), (_IS_GIVEN_UP, "given_up_numbers")):
        listed = rows.column(of_row).to_pylist()
        flags = [
            number in set(listed[row] or ())
            for row, length in enumerate(lengths)
            for number in range(1, length + 1)
        ]
        columns[flag] = pa.array(flags, pa.bool_())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _recorded(topic: str, taken: pa.Table) -> pa.Table:
    columns = {name: taken.column(_CAUSE + name) for name in _CAUSES}
    columns |= {name: taken.column(of) for name, of in _OF_MESSAGE.items()}
    return pa.table(columns).append_column("sent_topic", pa.repeat(pa.scalar(topic), taken.num_rows))


def _rows(topic: str, taken: pa.Table) -> pa.RecordBatch:
    schema = SENT_MESSAGES.arrow_schema
    now = pa.repeat(pa.scalar(datetime.now(UTC), schema.field("sent_at").type), taken.num_rows)
    made = _recorded(topic, taken).append_column("sent_at", now).select(schema.names).cast(schema)
    (batch,) = made.combine_chunks().to_batches()
    return batch
