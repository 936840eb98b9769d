"""What the source needs of a store, however it is reached.

Owns the port between Spark's side and a transport: readers/local.py maps the store's files, readers/http.py
asks the broker.

Invariants: both give equal answers for equal stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from structured_streaming.offsets import Bounds


class Chunk(NamedTuple):
    """One read of a queue.

    Attributes:
        status: FOUND, NO_NEW_MSG (at the end), NO_MATCHED_MSG (the tags fit none of what was
            scanned) or OFFSET_ILLEGAL (outside min..max).
        batch: The rows in the columns asked for; may be empty.
        next_offset: Where to read next.
        min_offset, max_offset: What the queue holds now.
        damaged: Ranges [from, to) the store skipped because their bytes fail the checksum.
        epoch: Of the log's newest bytes when all of it was read; 0 where the store does not say.
    """

    status: str
    batch: pa.RecordBatch | None
    next_offset: int
    min_offset: int
    max_offset: int
    damaged: tuple[tuple[int, int], ...]
    epoch: int = 0


class StoreReader(Protocol):
    """Reads one store.

    Attributes:
        broker_name: The broker whose store it is.
        store_id: Tells two stores apart that have the same broker name; "" when unknown.
        ahead: Whether fetching the next chunk while this one is handed on pays (a network does).
    """

    broker_name: str
    store_id: str
    ahead: bool

    @property
    def slave_answers(self) -> int:
        """How many answers were a slave's so far, which may be behind its master."""

    def epoch(self) -> int:
        """Returns the store's epoch now."""

    def topics(self) -> dict[str, str]:
        """Returns all topics with their ids."""

    def topic_id(self, topic: str) -> str | None:
        """Returns a topic's id ("" for a store RocketMQ wrote), or None when there is none."""

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Returns what each queue of a topic holds, confirmed messages only, and its epochs."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Returns the first offset stored at or after a time (epoch ms), the end when none is."""

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        """Reads up to a batch of messages of [offset, end)."""
