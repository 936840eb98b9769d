"""Sends what verdicts send, and says what was sent.

Owns the idempotence keys of these messages, and the rows of `sent_messages`.

Invariants: a request's key and content follow from rows of `deliveries` of one batch of the group job, which
are there whole or not at all: whoever sends them again, after whatever crash, asks for the same, and the
broker stores it once. A row is yielded when its message is stored.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.sent_messages import SENT_MESSAGES
from structured_streaming.options import WriteOptions
from structured_streaming.sink.sender import send_all

Unit = tuple[str, int, int]
"""What is sent under keys of its own: the group job's query and batch, and the lane."""

_UNIT = ("query_id", "batch_id", "lane")
_MESSAGE = ("topic", "body", "keys", "tags", "properties", "sharding_key", "delay_level", "message_id")
_SENT = {"topic": "sent_topic", "message_id": "sent_message_id", "keys": "sent_keys", "tags": "sent_tags"}


@dataclass(frozen=True)
class _Piece:
    """The messages of consecutive rows of one unit, and their rows of `sent_messages` but for the time."""

    unit: Unit
    messages: pa.RecordBatch
    sent: dict[str, pa.Array]


@dataclass(frozen=True)
class SendTask:
    """Sends the messages of rows that are sorted by unit and position.

    Attributes:
        group: the group.
        options: where they go; the brokers are the same at each run.
    """

    group: str
    options: WriteOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends one task's rows and yields what was sent, unit by unit.

        Raises:
            LakeMQError: a broker refuses a message, or was away for too long; what was sent before is not
                stored twice when the task runs again.
        """
        pieces = (piece for batch in batches for piece in _pieces(batch))
        for unit, of_unit in itertools.groupby(pieces, key=lambda piece: piece.unit):
            sent: list[dict[str, pa.Array]] = []
            send_all(self.options, self._key(unit), _noting(of_unit, sent))
            now = datetime.now(UTC)
            for columns in sent:
                yield _rows(columns, now)

    def _key(self, unit: Unit) -> str:
        """The begin of a unit's keys: short, since a group's name may be as long as a key."""
        text = "\n".join(map(str, (self.group, *unit)))
        return f"outbox/{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _noting(pieces: Iterator[_Piece], sent: list[dict[str, pa.Array]]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        sent.append(piece.sent)
        yield piece.messages


def _pieces(batch: pa.RecordBatch) -> Iterator[_Piece]:
    units = list(zip(*(batch.column(name).to_pylist() for name in _UNIT), strict=True))
    start = 0
    for unit, rows in itertools.groupby(units):
        count = sum(1 for _ in rows)
        yield _piece(unit, batch.slice(start, count))
        start += count


def _piece(unit: Unit, rows: pa.RecordBatch) -> _Piece:
    outbox = rows.column("outbox")
    each = outbox.flatten()
    decided = pc.list_parent_indices(outbox)
    fields = {name: pc.struct_field(each, name) for name in _MESSAGE}
    sent = {
        name: rows.column(name).take(decided)
        for name in SENT_MESSAGES.column_names
        if name in rows.schema.names
    }
    lengths = pc.list_value_length(outbox).to_pylist()
    sent["number"] = pa.array([number for length in lengths for number in range(1, length + 1)], pa.int32())
    sent |= {name: fields[field] for field, name in _SENT.items()}
    return _Piece(unit, pa.RecordBatch.from_arrays(list(fields.values()), names=list(fields)), sent)


def _rows(columns: dict[str, pa.Array], at: datetime) -> pa.RecordBatch:
    schema = SENT_MESSAGES.arrow_schema
    rows = len(columns["number"])
    sent_at = pa.repeat(pa.scalar(at, schema.field("sent_at").type), rows)
    columns = {name: column.cast(schema.field(name).type) for name, column in columns.items()}
    return pa.RecordBatch.from_arrays(
        [({**columns, "sent_at": sent_at})[name] for name in schema.names], schema=schema
    )
