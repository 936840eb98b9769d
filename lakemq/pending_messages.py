"""What a producer has to send, in lanes: messages of one topic and one lane may go in one request.

Owns the order of what waits.

Invariants: a lane's messages leave in the order they came, and so do those of one sharding key, whatever its
lane is meanwhile; messages of different lanes go to different brokers.

Threads: none of its own; the producer holds its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from lakemq.client import SendResult


@dataclass(slots=True)
class PendingMessage:
    """One message that is to be sent.

    Attributes:
        topic: Its topic.
        lane: What it has in common with those that go to the same broker.
        broker_name: The broker of the queue that was selected for it; it goes to no other.
        sharding_key: Its key.
        line: Its NDJSON.
        number: Counts the messages of the producer.
        since: When it was put.
        future: Ends when it is known what became of it.
    """

    topic: str
    lane: str | None
    broker_name: str | None
    sharding_key: str | None
    line: bytes
    number: int
    since: float
    future: Future[SendResult]


@dataclass(slots=True)
class _Lane:
    messages: deque[PendingMessage]
    size: int = 0


class PendingMessages:
    """The messages that wait, by lane.

    Args:
        batch_bytes: What a batch may hold; one message always may go.
    """

    def __init__(self, batch_bytes: int) -> None:
        self.size = 0
        self._batch_bytes = batch_bytes
        self._lanes: dict[str | None, _Lane] = {}
        self._of_key: dict[tuple[str, str], tuple[str | None, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def put(self, message: PendingMessage) -> None:
        """Adds a message behind the others of its lane."""
        if message.sharding_key is not None and message.broker_name is None:
            key = message.topic, message.sharding_key
            message.lane, waiting = self._of_key.get(key, (message.lane, 0))
            self._of_key[key] = message.lane, waiting + 1
        lane = self._lanes.setdefault(message.lane, _Lane(deque()))
        lane.messages.append(message)
        lane.size += len(message.line)
        self.size += len(message.line)

    def oldest(self) -> PendingMessage | None:
        """Returns the message that has waited longest."""
        firsts = [lane.messages[0] for lane in self._lanes.values()]
        return min(firsts, key=lambda message: message.number, default=None)

    def first_of_full_lane(self) -> PendingMessage | None:
        """Returns the first message of a lane that fills a batch."""
        full = (lane.messages[0] for lane in self._lanes.values() if lane.size >= self._batch_bytes)
        return next(full, None)

    def take_batch(self, first: PendingMessage) -> list[PendingMessage]:
        """Takes a message that is the first of its lane, and those behind it that may go with it."""
        lane = self._lanes[first.lane].messages
        batch = [self._take(first.lane)]
        size = len(first.line)
        while lane and lane[0].topic == first.topic:
            size += len(lane[0].line)
            if size > self._batch_bytes:
                break
            batch.append(self._take(first.lane))
        return batch

    def take_while(self, is_wanted: Callable[[PendingMessage], bool]) -> list[PendingMessage]:
        """Takes from the front of each lane while a message is wanted; returns them by number."""
        taken: list[PendingMessage] = []
        for name, lane in list(self._lanes.items()):
            while lane.messages and is_wanted(lane.messages[0]):
                taken.append(self._take(name))
        return sorted(taken, key=lambda message: message.number)

    def put_apart(self, lane_of: Callable[[PendingMessage], str | None]) -> None:
        """Puts the messages without a lane into theirs, among those that wait there, by number."""
        without = self._lanes.get(None)
        messages = [] if without is None else [self._take(None) for _ in range(len(without.messages))]
        for message in messages:
            message.lane = lane_of(message)
            self.put(message)
        for name in {message.lane for message in messages}:
            lane = self._lanes[name]
            lane.messages = deque(sorted(lane.messages, key=lambda message: message.number))

    def _take(self, name: str | None) -> PendingMessage:
        lane = self._lanes[name]
        message = lane.messages.popleft()
        lane.size -= len(message.line)
        self.size -= len(message.line)
        if not lane.messages:
            del self._lanes[name]
        if message.sharding_key is not None and message.broker_name is None:
            key = message.topic, message.sharding_key
            held, waiting = self._of_key.pop(key)
            if waiting > 1:
                self._of_key[key] = held, waiting - 1
        return message
