"""Where a producer's message goes: the queue that was selected, and which others may share its request.

Owns the question of which broker that is; pending_messages.py keeps what waits for it.

Invariants: a message whose queue was selected goes to that queue's broker and to no other; messages of one
lane go to one broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from lakemq.client import Client, LakeMQError, Message, MessageQueue
from lakemq.pending_messages import PendingMessage
from store_native.errors import InvalidRequest

QueueSelector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of the queues of a topic that take messages; it gets them by broker and id."""


class Lanes:
    """The lanes to the brokers behind a client.

    Args:
        client: Knows the brokers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def selected(
        self, topic: str, message: Message, select_queue: QueueSelector | None
    ) -> tuple[Message, str | None]:
        """Returns the message for the queue that was selected, and that queue's broker.

        Raises:
            InvalidRequest: The function chose no queue of the topic, or the message names one itself.
            LakeMQError: Nobody says which queues the topic has.
        """
        if select_queue is None:
            return message, None
        if message.queue_id is not None:
            raise InvalidRequest("ARGUMENT_ILLEGAL", "select_queue and queue_id: give one, both name a queue")
        queues = self._client.message_queues(topic)
        queue = select_queue(queues)
        if queue not in queues:
            what = f"select_queue chose {queue!r}, which is none of the {len(queues)} queues of topic {topic}"
            raise InvalidRequest("QUEUE_NOT_EXIST", what)
        _, broker_name, queue_id = queue  # a plain tuple is equal to one, too
        return replace(message, queue_id=queue_id), broker_name

    def lane_of(self, topic: str, message: Message, broker_name: str | None) -> str | None:
        """Returns a message's lane by what is known; None while nothing is. Asks nobody.

        Args:
            topic: Where it goes.
            message: With its sharding key.
            broker_name: Of the queue that was selected.
        """
        if broker_name is not None:
            return f"to {broker_name}"  # names have no spaces
        return self._client.known_lane(topic, message.sharding_key)

    def known(self, message: PendingMessage) -> str | None:
        """Returns the lane of a message that had none, by what is known now. Asks nobody."""
        return self._client.known_lane(message.topic, message.sharding_key)

    def apart(self, messages: Sequence[PendingMessage]) -> list[list[PendingMessage]]:
        """Returns the messages of a request by their lanes as they are now, each in their order.

        Where nobody says, a message keeps its lane.
        """
        lanes: dict[str | None, list[PendingMessage]] = {}
        for message in messages:
            with suppress(LakeMQError):
                message.lane = self._client.lane(message.topic, message.sharding_key)
            lanes.setdefault(message.lane, []).append(message)
        # Where they are of one lane by now, each goes alone: what was told has changed twice.
        return list(lanes.values()) if len(lanes) > 1 else [[message] for message in messages]

    def client_to(self, broker_name: str | None) -> Client:
        """Returns who sends to a broker; None is the one whose turn it is."""
        return self._client if broker_name is None else self._client.broker(broker_name)
