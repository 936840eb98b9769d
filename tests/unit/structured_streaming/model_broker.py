"""A broker as its readers see it, in plain Python: topics whose queues grow, expire, vanish and come back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from store_native.errors import from_code
from structured_streaming.offsets import Bounds, EpochOffset
from structured_streaming.readers import Chunk

CHUNK_ROWS = 3


class Message(NamedTuple):
    """One message; ``life`` tells its queue from others that had the same name before or after."""

    life: int
    topic: str
    topic_id: str
    queue_id: int
    offset: int


@dataclass
class ModelQueue:
    """Offsets [low, high) of one queue."""

    life: int
    low: int = 0
    high: int = 0
    hidden: bool = False
    epochs: list[EpochOffset] = field(default_factory=list)
    short: bool = False  # put back behind the query's position, and the query has not looked since

    def forget(self) -> None:
        """Where an epoch began among what has expired is not known any more."""
        self.epochs = [
            EpochOffset(at.epoch, self.low, at_or_before=True) if 0 < at.first_offset <= self.low else at
            for at in self.epochs
        ]


@dataclass
class ModelTopic:
    """A topic in one life."""

    topic_id: str
    queues: dict[int, ModelQueue] = field(default_factory=dict)


class ModelBroker:
    """Answers as a StoreReader does."""

    broker_name = "broker-a"
    store_id = "s"
    ahead = False
    slave_answers = 0

    def __init__(self) -> None:
        self.epoch_now = self.first_epoch = 5
        self.forced = False
        self.held: dict[str, ModelTopic] = {}
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A number never given before."""
        return next(self._numbers)

    def create(self, topic: str, queues: int) -> None:
        """Makes a topic with an id of its own."""
        made = self.held[topic] = ModelTopic(f"id{self.number()}")
        for queue_id in range(queues):
            made.queues[queue_id] = ModelQueue(self.number())

    def message(self, topic: str, queue_id: int, offset: int) -> Message:
        """The message at a position."""
        found = self.held[topic]
        return Message(found.queues[queue_id].life, topic, found.topic_id, queue_id, offset)

    def messages(self, topic: str, queue_id: int) -> list[Message]:
        """All that a queue holds."""
        queue = self.held[topic].queues[queue_id]
        return [self.message(topic, queue_id, offset) for offset in range(queue.low, queue.high)]

    def epoch(self) -> int:
        return self.epoch_now

    def topics(self) -> dict[str, str]:
        return {topic: found.topic_id for topic, found in self.held.items()}

    def topic_id(self, topic: str) -> str | None:
        return self.held[topic].topic_id if topic in self.held else None

    def bounds(self, topic: str) -> dict[int, Bounds]:
        if topic not in self.held:
            raise from_code("TOPIC_NOT_EXIST", topic)
        queues = self.held[topic].queues
        return {
            i: Bounds(queue.low, queue.high, self.epochs_of(queue))
            for i, queue in queues.items()
            if not queue.hidden
        }

    def epochs_of(self, queue: ModelQueue) -> tuple[EpochOffset, ...]:
        """The epochs of a queue, where promotions by force have made any."""
        if not self.forced:
            return ()
        began = [EpochOffset(self.first_epoch, 0), *queue.epochs]
        if began[-1].epoch != self.epoch_now:
            began.append(EpochOffset(self.epoch_now, 0))  # the queue was made since
        return tuple({at[1:]: at for at in began}.values())

    def fail_over(self) -> None:
        """A slave that has everything is the master of the next epoch."""
        self.promote({})

    def put_back(self, epoch: int) -> None:
        """It is an older store now, of which this is the only epoch."""
        self.epoch_now = self.first_epoch = epoch
        for held in self.held.values():
            for queue in held.queues.values():
                queue.epochs.clear()

    def promote_by_force(self, ends: dict[tuple[str, int], int]) -> None:
        """A slave that has the queues up to these ends is the master of the next epoch."""
        self.forced = True
        self.promote(ends)

    def promote(self, ends: dict[tuple[str, int], int]) -> None:
        """A slave that has the queues up to these ends, or whole, is the master of the next epoch."""
        self.epoch_now += 1
        for topic, held in self.held.items():
            for queue_id, queue in held.queues.items():
                end = ends.get((topic, queue_id), queue.high)
                queue.high = end
                queue.epochs = [at for at in queue.epochs if at.first_offset < end]
                queue.epochs.append(EpochOffset(self.epoch_now, end))

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        raise NotImplementedError

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        low, high, _ = self.bounds(topic)[queue_id]
        if not low <= offset <= high:
            return Chunk("OFFSET_ILLEGAL", None, offset, low, high, (), self.log_epoch())
        upto = min(end, offset + CHUNK_ROWS, high)
        if upto == offset:
            return Chunk("NO_NEW_MSG", None, offset, low, high, (), self.log_epoch())
        rows = pa.record_batch({"queue_offset": pa.array(range(offset, upto), pa.int64())})
        return Chunk("FOUND", rows, upto, low, high, (), self.log_epoch())

    def log_epoch(self) -> int:
        """The epoch of the newest bytes, where the store says it."""
        return self.epoch_now if self.forced else 0
