"""A reader that waits while its broker is away.

Owns that each request is repeated until `retryTimeoutMs` is over, and that a long wait is said.

Invariants: reading changes nothing, so every call may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from store_native.errors import LakeMQError
from structured_streaming.offsets import Bounds
from structured_streaming.readers.base import Chunk, StoreReader
from structured_streaming.retry_timeout import retry_until

log = logging.getLogger("lakemq.spark")

_Answer = TypeVar("_Answer")


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
    def slave_answers(self) -> int:
        return self._reader.slave_answers

    def epoch(self) -> int:
        return self._wait(self._reader.epoch)

    def topics(self) -> dict[str, str]:
        return self._wait(self._reader.topics)

    def topic_id(self, topic: str) -> str | None:
        return self._wait(lambda: self._reader.topic_id(topic))

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return self._wait(lambda: self._reader.bounds(topic))

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return self._wait(lambda: self._reader.offset_by_time(topic, queue_id, timestamp))

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        return self._wait(lambda: self._reader.read(topic, queue_id, offset, end, columns, tags))

    def _wait(self, call: Callable[[], _Answer]) -> _Answer:
        return retry_until(call, self._retry_timeout_s, waits=_say_that_it_waits)


def _say_that_it_waits(error: LakeMQError) -> None:
    log.warning("%s; what reads from it waits", error)
