"""A broker in plain Python, for the model of a group job: queues, delayed messages, keys, offsets, a lease.

Owns what a group's jobs ask of a broker, and readers of its queues.

Invariants: a key stores once; an offset is taken under the newest epoch of the lease only; a message that
waits is delivered when the model says so, in any order, and twice where a crash of the broker is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.group.slice_tasks import GroupReader
from lakemq.client.results import QueueBounds, TopicConfig
from store_native.errors import from_code
from structured_streaming.offsets import Bounds, MessageQueue
from structured_streaming.readers import Chunk
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.spark_versions import arrow_schema

NAME = "b"
_NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
_EMPTY: dict[str, Any] = {
    "keys": None,
    "tags": None,
    "born_timestamp": _NOW,
    "store_timestamp": _NOW,
    "reconsume_times": 0,
    "properties": [],
    "flag": 0,
}

Message = dict[str, Any]


class ModelBroker:
    """One broker, and the client of it.

    Attributes:
        queues: The messages of each queue, by their columns.
        delayed: Messages that wait for their time, with their topics.
        offsets: How far the group said it is.
        epoch: Of the newest lease.
    """

    endpoint = "http://model"

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.queues: dict[MessageQueue, list[Message]] = {
            MessageQueue(topic, NAME, n): [] for topic, queues in topics.items() for n in range(queues)
        }
        self.delayed: list[tuple[str, Message]] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.epoch = 0
        self._keys: set[str] = set()

    def send(self, topic: str, queue_id: int, message: Message) -> MessageQueue:
        """Stores a message."""
        queue = MessageQueue(topic, NAME, queue_id)
        held = self.queues[queue]
        place = {"topic": topic, "broker_name": NAME, "queue_id": queue_id, "queue_offset": len(held)}
        held.append(_EMPTY | message | place)
        return queue

    def send_once(self, key: str, topic: str, message: Message, *, delayed: bool = False) -> None:
        """Stores a message unless its key was there before."""
        if key in self._keys:
            return
        self._keys.add(key)
        if delayed:
            self.delayed.append((topic, message))
        else:
            self.send(topic, 0, message)

    def deliver(self, which: Iterable[int], *, twice: bool = False) -> None:
        """The time of some delayed messages has come, in this order; `twice`: they come again later."""
        chosen = set()
        for at in which:
            if at not in chosen:
                self.send(self.delayed[at][0], 0, self.delayed[at][1])
                chosen.add(at)
        if not twice:
            self.delayed = [each for at, each in enumerate(self.delayed) if at not in chosen]

    def ends(self, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """How far the queues of some topics are."""
        return {queue: len(held) for queue, held in self.queues.items() if queue.topic in topics}

    def is_cluster(self) -> bool:
        return False

    def never_answered(self) -> list[str]:
        return []

    def cluster(self) -> dict[str, Any]:
        return {"broker_name": NAME, "store_id": "s", "max_message_bytes": 4 << 20}

    def topic(self, topic: str) -> TopicConfig:
        return TopicConfig(topic, f"id of {topic}", 1, 1, 6)

    def queue_bounds(self, topic: str) -> list[QueueBounds]:
        ends = self.ends([topic])
        return [QueueBounds(queue.queue_id, 0, end, end) for queue, end in ends.items()]

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        return dict(self.offsets)

    def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, lease_epoch: int | None
    ) -> None:
        if lease_epoch != self.epoch:
            raise from_code("LEASE_CONFLICT", f"epoch {lease_epoch} is not {self.epoch}")
        self.offsets |= offsets

    def count_batch(self, group: str, batch: str, messages: Any, seconds: float, *, lease_epoch: Any) -> None:
        """Counts nothing."""


class ModelClient:
    """What a job takes for a client: the broker's methods, `queues` among them."""

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker
        self.queues = broker.queue_bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class ModelLease:
    """A lease that a broker granted.

    Attributes:
        epoch: Its fencing epoch.
        sees: Whether its holder notices that the group is another's by now.
    """

    def __init__(self, broker: ModelBroker) -> None:
        broker.epoch += 1
        self.epoch = broker.epoch
        self.sees = True
        self._broker = broker

    def epoch_at(self, broker_name: str) -> int:
        return self.epoch

    def check(self) -> int:
        if self.sees:
            self.confirm()
        return self.epoch

    def confirm(self) -> None:
        if self._broker.epoch != self.epoch:
            raise from_code("LEASE_CONFLICT", f"epoch {self.epoch} is not {self._broker.epoch}")


@dataclass(frozen=True)
class ModelSliceReader(GroupReader):
    """Reads slices of a model broker's queues."""

    reader: ModelReader | None = None

    def read(self, piece: QueueSlice) -> Iterator[pa.RecordBatch]:
        """As any."""
        assert self.reader is not None
        return self.read_from(self.reader, piece)


class ModelReader:
    """Reads a model broker.

    Attributes:
        fail: Called before each read with bodies.
    """

    broker_name = NAME
    store_id = "s"
    ahead = False
    slave_answers = 0

    def __init__(self, broker: ModelBroker, schema: Any) -> None:
        self._broker = broker
        self._schema = arrow_schema(schema)
        self.fail: Callable[[], None] = lambda: None

    def epoch(self) -> int:
        return 1

    def topics(self) -> dict[str, str]:
        return {}

    def topic_id(self, topic: str) -> str | None:
        return f"id of {topic}"

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return {}

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return 0

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        if "body" in columns:
            self.fail()
        held = self._broker.queues[MessageQueue(topic, NAME, queue_id)]
        rows = pa.RecordBatch.from_pylist(held[offset:end], self._schema).select(list(columns))
        return Chunk("FOUND", rows, end, 0, len(held), ())
