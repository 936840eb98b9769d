"""The brokers a group reads: one, or all of a cluster.

Owns what the job asks each of them for, and how a queue is named in the start of a job's query.

Invariants: one broker is asked as before there were several; of several one that is away stops neither the
report of the others' offsets nor the group's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from lakemq.client import Client, QueueBounds
from lakemq.client.errors import may_pass
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from structured_streaming.offsets import MessageQueue
from structured_streaming.retry_timeout import RETRY_TIMEOUT_MS
from structured_streaming.subscription import Subscription

_log = logging.getLogger(__name__)

_AS_LONG_AS_IT_TAKES_MS = 366 * 86_400_000
_DECIDED = "where a query without a checkpoint begins is decided once, when every broker answers"


class GroupBrokers:
    """The brokers behind a job's endpoint.

    Args:
        client: The endpoint's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.several = client.is_cluster()
        self._only = "" if self.several else str(client.cluster()["broker_name"])

    def each(self) -> dict[str, Client]:
        """The brokers by name, as they are known now."""
        return self._client.brokers() if self.several else {self._only: self._client}

    def broker(self, name: str) -> Client:
        """One of them; where there is one, that one, whatever it was called before."""
        return self._client.broker(name) if self.several else self._client

    @property
    def retry_timeout_ms(self) -> int:
        """How long a job waits for a broker whose messages are in its batch.

        One of several is waited for as long as it takes: a job that ended would begin again with the same
        batch, and wait again.
        """
        return _AS_LONG_AS_IT_TAKES_MS if self.several else RETRY_TIMEOUT_MS

    def all_for_a_start(self) -> dict[str, Client]:
        """As each, where a query's start is decided: all of them are needed.

        Raises:
            Unavailable: It is not known who they are.
        """
        unknown = self.never_answered()
        if unknown:
            what = f"{', '.join(unknown)} does not answer: {_DECIDED}"
            raise Unavailable("SERVICE_NOT_AVAILABLE", what)
        return self.each()

    def queues(self, topic: str) -> dict[MessageQueue, QueueBounds]:
        """What each queue of a topic holds, on every broker that has the topic.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, no broker has it.
            Unavailable: A broker does not answer.
        """
        if not self.several:
            return _by_queue(topic, self._only, self._client.queues(topic))
        found: dict[MessageQueue, QueueBounds] = {}
        missing: InvalidRequest | None = None
        for name in self.each():
            try:
                found |= self._queues(name, topic)
            except InvalidRequest as error:
                if error.code != "TOPIC_NOT_EXIST":
                    raise
                missing = error
        if not found and missing is not None:
            raise missing
        return found

    def topic_id(self, name: str, topic: str) -> str:
        """A broker's id of a topic, which changes when it is deleted and made again; "" where it has none."""
        return self.broker(name).topic(topic).topic_id

    def has_topic(self, name: str, topic: str) -> bool:
        """Whether a broker has a topic.

        Raises:
            Unavailable: The broker does not answer.
        """
        try:
            self.broker(name).topic(topic)
        except InvalidRequest as error:
            if error.code != "TOPIC_NOT_EXIST":
                raise
            return False
        return True

    def held(self, subscription: Subscription) -> dict[str, dict[MessageQueue, QueueBounds]]:
        """What each queue of each topic of a subscription holds, on every broker.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, no broker has a topic that is named.
            Unavailable: A broker does not answer.
        """
        if subscription.pattern is None:
            return {topic: self.queues(topic) for topic in subscription.named_topics()}
        found: dict[str, dict[MessageQueue, QueueBounds]] = {}
        for name in self.each():
            for queue, bounds in self.held_at(name, subscription).items():
                found.setdefault(queue.topic, {})[queue] = bounds
        return found

    def held_at(self, name: str, subscription: Subscription) -> dict[MessageQueue, QueueBounds]:
        """The same of one broker; of several, topics that are named may be others'.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, the only broker has not got a topic that is named.
            Unavailable: The broker does not answer.
        """
        topics = subscription.named_topics()
        if subscription.pattern is not None:
            topics = subscription.matching(topic.topic for topic in self.broker(name).topics())
        found: dict[MessageQueue, QueueBounds] = {}
        for topic in topics:
            try:
                found |= self._queues(name, topic)
            except InvalidRequest as error:
                may_be_gone = self.several or subscription.pattern is not None
                if not may_be_gone or error.code != "TOPIC_NOT_EXIST":
                    raise
        return found

    def _queues(self, name: str, topic: str) -> dict[MessageQueue, QueueBounds]:
        return _by_queue(topic, name, self.broker(name).queues(topic))

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The ends of some queues, of those whose broker answers."""
        found: dict[MessageQueue, int] = {}
        for topic, name in sorted({(queue.topic, queue.broker_name) for queue in queues}):
            try:
                held = self.broker(name).queues(topic)
            except LakeMQError as error:
                _log.warning("the report of this batch goes without max offsets: %s", error)
                continue
            found |= {queue: b.max_offset for queue, b in _by_queue(topic, name, held).items()}
        return found

    def committed_offsets(self, group: str) -> dict[MessageQueue, int]:
        """The group's offsets at every broker; none where a broker does not know the group."""
        found: dict[MessageQueue, int] = {}
        for name, broker in self.each().items():
            try:
                offsets = broker.group_offsets(group)
            except InvalidRequest as error:
                if not self.several or error.code != "GROUP_NOT_EXIST":
                    raise
                continue
            found |= {MessageQueue(topic, name, queue_id): at for (topic, queue_id), at in offsets.items()}
        return found

    def largest_body(self) -> int | None:
        """The largest body that every broker takes; None where none of them says it."""
        limits: list[int] = []
        for broker in self.each().values():
            try:
                limits.append(int(broker.cluster()["max_message_bytes"]))
            except LakeMQError as error:
                if not self.several or not may_pass(error):
                    raise
            except KeyError:  # of an earlier version
                continue
        return min(limits, default=None)

    def never_answered(self) -> list[str]:
        """Addresses of which it is not known what broker is there."""
        return self._client.never_answered()

    def are_all_ready(self) -> bool:
        """Whether every broker serves."""
        try:
            return all(broker.ready() for broker in self.each().values())
        except LakeMQError as error:
            if not may_pass(error):
                raise
            return False

    def key(self, queue: MessageQueue) -> str:
        """How a queue is named in startingOffsets, whether its broker is one of several or the only one."""
        return f"{queue.broker_name}/{queue.queue_id}"

    def queue(self, topic: str, key: str) -> MessageQueue:
        """Which queue that is."""
        name, _, queue_id = key.rpartition("/")
        return MessageQueue(topic, name or self._only, int(queue_id))

    def positions(self, start: Mapping[str, Mapping[str, int]]) -> dict[MessageQueue, int]:
        """Reads startingOffsets."""
        return {self.queue(topic, key): at for topic, keys in start.items() for key, at in keys.items()}


def awaited(error: LakeMQError) -> LakeMQError:
    """Says of a broker's outage what it holds up."""
    return Unavailable("SERVICE_NOT_AVAILABLE", f"{error.detail}: {_DECIDED}", **error.context)


def _by_queue(topic: str, name: str, held: Iterable[QueueBounds]) -> dict[MessageQueue, QueueBounds]:
    return {MessageQueue(topic, name, bounds.queue_id): bounds for bounds in held}
