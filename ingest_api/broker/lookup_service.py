"""Finds stored messages by id and by key, the bounds of queues, and offsets by time.

Owns what a front door asks about stored messages beside pulls.

Invariants: nothing that is not confirmed is found.

Threads: the event loop; the store is asked on the read pool.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingest_api.broker.thread_pools import ReadPool
from store_native import Store
from store_native.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class EpochOffset:
    """An epoch of the log, and the first queue offset that it, or a later one, gave in a queue.

    ``at_or_before``: it may have been an earlier one, which retention has taken.
    """

    epoch: int
    first_offset: int
    at_or_before: bool


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Where a queue begins and ends: ``min_offset <= offset < confirmed_offset`` can be read.

    ``epochs`` has the oldest first; of epochs of which the same is told only the newest.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    confirmed_offset: int
    epochs: list[EpochOffset]


@dataclass(frozen=True, slots=True)
class QueuesOfTopic:
    """The queues of a topic.

    Attributes:
        queues: By queue id.
        settled: They show the log's newest epoch; else it begins behind what they show, which may be less
            than the broker's master before showed.
    """

    queues: list[QueueBounds]
    settled: bool


class LookupService:
    """Lookups.

    Args:
        store: What is searched.
        reads: Runs the searches.
        max_query_bytes: Of JSON that a search by key returns at most; one message may be longer.
    """

    def __init__(self, store: Store, reads: ReadPool, max_query_bytes: int) -> None:
        self._store = store
        self._reads = reads
        self._max_query_bytes = max_query_bytes

    async def message(self, message_id: str, topic: str | None = None) -> bytes:
        """Returns a message, as a JSON object.

        Args:
            message_id: Its message_id or its offset_message_id.
            topic: Where to look for a message_id; None means everywhere.

        Raises:
            InvalidRequest: MESSAGE_NOT_EXIST.
        """
        found = await self._reads.run(self._store.find_message_json, message_id, topic)
        if found is None:
            raise InvalidRequest(
                "MESSAGE_NOT_EXIST", f"no message has the id {message_id}", message_id=message_id
            )
        return found

    async def messages_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_messages: int
    ) -> bytes:
        """Returns the newest messages that carry a key (or message_id), oldest first, as a JSON array.

        Args:
            topic: Where to look.
            key: One of the message's KEYS, or its message_id.
            begin_ms: Stored at this time (epoch ms) or later.
            end_ms: Stored at this time or before.
            max_messages: How many at most.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST.
        """
        return await self._reads.run(
            self._store.query_json,
            topic,
            key,
            begin=begin_ms,
            end=end_ms,
            max_messages=max_messages,
            max_bytes=self._max_query_bytes,
        )

    async def queues(self, topic: str) -> QueuesOfTopic:
        """Returns the queues of a topic.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST.
        """
        settled, rows = await self._reads.run(self._store.queue_epochs, topic)
        found = [QueueBounds(*row[:4], [EpochOffset(*at) for at in row[4]]) for row in rows]
        return QueuesOfTopic(found, settled)

    async def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Returns the first offset stored at or after a time (epoch ms); the maximum when there is none.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, QUEUE_NOT_EXIST.
        """
        return await self._reads.run(self._store.offset_by_time, topic, queue_id, timestamp_ms)
