"""A reader that waits while its broker is away.

Owns that each request is repeated until `retryTimeoutMs` is over.

Invariants: reading changes nothing, so every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from structured_streaming.offsets import Bounds
from structured_streaming.readers.base import Chunk, StoreReader
from structured_streaming.retry_timeout import retry_until


class RetryingReader:
    """Calls another reader, again and again where that can help.

    Args:
        reader: The reader of the store.
        retry_timeout_s: For how long each call is tried.
    """

    def __init__(self, reader: StoreReader, retry_timeout_s: float) -> None:
        self._reader = reader
        self._retry_timeout_s = retry_timeout_s
        self.broker_name = reader.broker_name
        self.store_id = reader.store_id
        self.ahead = reader.ahead

    @property
    def from_slave(self) -> bool:
        return self._reader.from_slave

    def epoch(self) -> int:
        return retry_until(self._reader.epoch, self._retry_timeout_s)

    def topics(self) -> dict[str, str]:
        return retry_until(self._reader.topics, self._retry_timeout_s)

    def topic_id(self, topic: str) -> str | None:
        return retry_until(lambda: self._reader.topic_id(topic), self._retry_timeout_s)

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return retry_until(lambda: self._reader.bounds(topic), self._retry_timeout_s)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return retry_until(
            lambda: self._reader.offset_by_time(topic, queue_id, timestamp), self._retry_timeout_s
        )

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        return retry_until(
            lambda: self._reader.read(topic, queue_id, offset, end, columns, tags), self._retry_timeout_s
        )
