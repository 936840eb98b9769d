"""What a producer has to send, in lanes: messages of one topic and one lane may go in one request.

Owns the order of what waits, and how the future of a message ends.

Invariants: a lane's messages leave in the order they came, and so do those of one sharding key, whatever its
lane is meanwhile; messages of different lanes go to different brokers; of one lane, and of one sharding key,
one batch is on its way at a time; what the callbacks of a future do ends no thread that sends.

Threads: none of its own; send_queue.py has the lock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass

from lakemq.client import SendResult

_log = logging.getLogger("lakemq.producer")


@dataclass(slots=True)
class PendingMessage:
    """One message that is to be sent.

    Attributes:
        topic: Its topic.
        lane: What it has in common with those that go to the same broker.
        broker_name: The broker of the queue that was selected for it; it goes to no other.
        sharding_key: Its key.
        line: Its NDJSON.
        number: Counts the messages of the producer, from when it is put.
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

    def stored(self, result: SendResult) -> None:
        """Ends its future with where it is stored."""
        with _callbacks_contained():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Ends its future with an error."""
        with _callbacks_contained():
            self.future.set_exception(error)


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
        self._lanes_under_way: set[str | None] = set()
        self._keys_under_way: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def put(self, message: PendingMessage) -> None:
        """Adds a message behind the others of its lane."""
        key = _key_of(message)
        if key is not None:
            message.lane, waiting = self._of_key.get(key, (message.lane, 0))
            self._of_key[key] = message.lane, waiting + 1
        lane = self._lanes.setdefault(message.lane, _Lane(deque()))
        lane.messages.append(message)
        lane.size += len(message.line)
        self.size += len(message.line)

    def oldest(self) -> PendingMessage | None:
        """Returns the message that has waited longest, of those that may go now."""
        return min(self._firsts(0), key=lambda message: message.number, default=None)

    def first_without_lane(self) -> PendingMessage | None:
        """Returns the first message of those without a lane."""
        lane = self._lanes.get(None)
        return None if lane is None else lane.messages[0]

    def first_of_full_lane(self) -> PendingMessage | None:
        """Returns the first message of a lane that fills a batch, and may go now."""
        return next(self._firsts(self._batch_bytes), None)

    def _firsts(self, least_size: int) -> Iterator[PendingMessage]:
        """The first messages of lanes of which, and of whose keys, nothing is on its way."""
        for name, lane in self._lanes.items():
            if lane.size >= least_size and name not in self._lanes_under_way:
                first = lane.messages[0]
                if _key_of(first) not in self._keys_under_way:
                    yield first

    def take_batch(self, first: PendingMessage) -> list[PendingMessage]:
        """Takes a message that is the first of its lane, and those behind it that may go with it.

        They are on their way until :meth:`ended`.
        """
        lane = self._lanes[first.lane].messages
        batch = [self._take(first.lane)]
        size = len(first.line)
        while lane and lane[0].topic == first.topic and _key_of(lane[0]) not in self._keys_under_way:
            size += len(lane[0].line)
            if size > self._batch_bytes:
                break
            batch.append(self._take(first.lane))
        keys = [key for key in map(_key_of, batch) if key is not None]
        self._keys_under_way.update(keys)
        if first.lane is not None or not keys:
            # Without a lane, what has sharding keys is of brokers that nobody has named: none waits for it.
            self._lanes_under_way.add(first.lane)
        return batch

    def take_less(self, batch: Sequence[PendingMessage]) -> None:
        """Takes no batch any more that is larger than half of one that was too large."""
        self._batch_bytes = max(1, sum(len(message.line) for message in batch) // 2)

    def ended(self, lane: str | None, batch: Sequence[PendingMessage]) -> None:
        """Notes that a batch is not on its way any more.

        Args:
            lane: In which it was taken.
            batch: What was taken.
        """
        keys = [key for key in map(_key_of, batch) if key is not None]
        if lane is not None or not keys:
            self._lanes_under_way.discard(lane)
        self._keys_under_way.subtract(keys)
        for key in keys:
            if not self._keys_under_way[key]:
                del self._keys_under_way[key]

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
        self.put_back(messages)

    def lay_out(self, lane_of: Callable[[PendingMessage], str | None]) -> None:
        """Puts messages with a sharding key into the lanes they are of by now, where that is known."""
        messages = self.take_while(lambda message: True)
        lanes: dict[tuple[str, str], str | None] = {}
        for message in messages:
            key = _key_of(message)
            if key is not None:
                if key not in lanes:
                    lanes[key] = lane_of(message)
                message.lane = lanes[key] or message.lane
        self.put_back(messages)

    def put_back(self, messages: Sequence[PendingMessage]) -> None:
        """Puts messages that were taken before into their lanes, among those that wait there, by number."""
        for message in messages:
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
        key = _key_of(message)
        if key is not None:
            held, waiting = self._of_key.pop(key)
            if waiting > 1:
                self._of_key[key] = held, waiting - 1
        return message


def _key_of(message: PendingMessage) -> tuple[str, str] | None:
    """What messages have in common whose order holds; None: nothing."""
    if message.sharding_key is None or message.broker_name is not None:
        return None
    return message.topic, message.sharding_key


@contextlib.contextmanager
def _callbacks_contained() -> Iterator[None]:
    """Around the end of a future: what its callbacks do ends no sender."""
    try:
        yield
    except InvalidStateError:
        pass  # close(timeout) was quicker
    except BaseException as left:
        if isinstance(left, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        _log.error("a callback of a future ended with %r: the producer goes on", left)
