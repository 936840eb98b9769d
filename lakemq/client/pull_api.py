"""The calls that read messages.

Owns pulls (as messages or as Arrow), bounds, and look-ups by id, key and time. Mixed into Client; the Spark
source over HTTP reads through pull_arrow.

Invariants: all are repeatable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakemq.client import arrow
from lakemq.client.message import ReceivedMessage
from lakemq.client.results import ArrowPull, PullResult, QueueBounds
from lakemq.client.scope import Scoped, from_all, from_any, of_one_broker
from lakemq.client.transport import path_of


class PullApi(Scoped):
    """Reads messages; see :class:`lakemq.client.Client`.

    Where several brokers have a topic, ``broker_name`` says whose queue is meant; a slave answers for a
    master that is away.
    """

    @of_one_broker
    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max: int = 32,
        wait_ms: int = 0,
        tags: str = "*",
        max_bytes: int | None = None,
        broker_name: str | None = None,
    ) -> PullResult:
        """Reads messages of one queue from an offset on.

        Args:
            topic: The topic.
            queue_id: The queue.
            offset: The first queue offset wanted.
            max: At most so many messages (the broker has a limit of its own).
            wait_ms: Holds the request until something arrives, at most so long (15 s).
            tags: ``*`` or ``A || B``.
            max_bytes: At most so many bytes of bodies, at least one message.
            broker_name: Whose queue, where several brokers have the topic.

        Raises:
            LakeMQError: TOPIC_NOT_EXIST, QUEUE_NOT_EXIST, FILTER_ILLEGAL ... An offset out of range
                is a status of the result, not an error.
        """
        query = {
            "offset": offset,
            "max": max,
            "max_bytes": max_bytes,
            "tags": tags,
            "wait_ms": wait_ms or None,
        }
        answer = self._transport.call(
            "GET",
            path_of("topics", topic, "queues", queue_id, "messages"),
            query=query,
            wait_s=wait_ms / 1000,
        )
        pulled = answer.read(PullResult.from_json)
        return replace(pulled, from_slave=True) if answer.from_slave else pulled

    @of_one_broker
    def pull_arrow(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        end_offset: int | None = None,
        max: int = 10_000,
        max_bytes: int | None = None,
        tags: str = "*",
        columns: Sequence[str] | None = None,
        wait_ms: int = 0,
        broker_name: str | None = None,
    ) -> ArrowPull:
        """Reads a slice of one queue as a record batch in the source's columns.

        Args:
            end_offset: Reads nothing at or after this queue offset.
            columns: The columns wanted, in this order; None is the default set.

        Other arguments and errors as :meth:`pull`.

        Raises:
            InvalidRequest: MALFORMED_BODY when the answer is no whole Arrow stream (not a LakeMQ broker, or
                cut on its way).
        """
        query = {
            "offset": offset,
            "end_offset": end_offset,
            "max": max,
            "max_bytes": max_bytes,
            "tags": tags,
            "columns": None if columns is None else ",".join(columns),
            "wait_ms": wait_ms or None,
        }
        answer = self._transport.call(
            "GET",
            path_of("topics", topic, "queues", queue_id, "messages"),
            query=query,
            headers={"Accept": arrow.CONTENT_TYPE},
            wait_s=wait_ms / 1000,
        )
        return arrow.decode_pull(answer)

    @of_one_broker
    def queues(self, topic: str, *, broker_name: str | None = None) -> list[QueueBounds]:
        """Returns the offsets each queue of a topic holds, by queue id."""
        answer = self._transport.call("GET", path_of("topics", topic, "queues"))
        bounds = answer.read(_bounds_of)
        return [replace(queue, from_slave=True) for queue in bounds] if answer.from_slave else bounds

    @of_one_broker
    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, broker_name: str | None = None
    ) -> int:
        """Returns the first queue offset stored at or after a time (epoch ms).

        It is the queue's end when nothing is that young.
        """
        answer = self._transport.call(
            "GET", path_of("topics", topic, "queues", queue_id, "offset"), query={"timestamp": timestamp}
        )
        return answer.read(lambda found: int(found["offset"]))

    @from_any
    def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Returns one message by its id or its offset id.

        Args:
            topic: Where to look for a message id; None looks in every topic.

        Raises:
            InvalidRequest: MESSAGE_NOT_EXIST.
        """
        answer = self._transport.call("GET", path_of("messages", message_id), query={"topic": topic})
        return answer.read(ReceivedMessage.from_json)

    @from_all()
    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: int | None = None,
        end: int | None = None,
        max: int = 32,
    ) -> list[ReceivedMessage]:
        """Finds messages of a topic by one of their keys (or by message id), through the index.

        Args:
            begin, end: Store time, epoch ms, both included.
            max: At most so many; the newest comes last.
        """
        answer = self._transport.call(
            "GET",
            path_of("topics", topic, "messages"),
            query={"key": key, "begin": begin, "end": end, "max": max},
        )
        return answer.read(_messages_of)


def _bounds_of(queues: Any) -> list[QueueBounds]:
    if not isinstance(queues, list):
        raise TypeError("not a list")
    return [QueueBounds.from_json(queue) for queue in queues]


def _messages_of(found: Any) -> list[ReceivedMessage]:
    messages = found["messages"] if isinstance(found, dict) else found
    return [ReceivedMessage.from_json(message) for message in messages]
