"""Positions in message queues, as a Spark checkpoint keeps them.

Owns the offset JSON, which is final because checkpoints outlive releases:

    {"v":1,"epoch":1,"epoch_of":"log",
     "topics":{"orders":{"id":"<topic id>","brokers":{"broker-a":{"0":12,"1":7}}}}}

Each number is the *next* queue offset to read. The topic id tells a topic that was deleted and made again
from one whose old messages expired; the epoch tells a log that was put back to an older state, or that goes
on under another master, which may have lacked its end. Releases that wrote no ``epoch_of`` took the epoch, by
a store's path, from where it says 1 for ever.

Invariants: equal positions give equal JSON text, because Spark compares offsets as text. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from store_native.errors import LakeMQError, Unavailable, from_code

VERSION = 1
_EPOCH_OF = "log"


class MessageQueue(NamedTuple):
    """One queue: RocketMQ's (topic, broker name, queue id)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic}, broker {self.broker_name}, queue {self.queue_id}"


class EpochOffset(NamedTuple):
    """An epoch of a log, and the first queue offset that it, or a later one, gave in a queue.

    ``at_or_before``: it may have been an earlier one, which retention has taken.
    """

    epoch: int
    first_offset: int
    at_or_before: bool = False


class Bounds(NamedTuple):
    """What a queue holds now: min_offset <= offset < max_offset can be read (confirmed only).

    ``epochs`` are those that the log is made of, oldest first; empty where the store does not say.
    """

    min_offset: int
    max_offset: int
    epochs: tuple[EpochOffset, ...] = ()

    def common_end(self, epoch: int) -> int | None:
        """Returns up to where at most the queue is as in an earlier epoch; None when all of it is."""
        return next((at.first_offset for at in self.epochs if at.epoch > epoch), None)

    def past(self, position: int, epoch: int) -> EpochOffset | None:
        """Returns where a later epoch begins that a position may lie behind, which was taken in an epoch."""
        later = next((at for at in self.epochs if at.epoch > epoch), None)
        if later is None or position == 0:
            return None
        return later if position > later.first_offset or later.at_or_before else None

    def ends_before(self, epoch: int) -> bool:
        """Says whether its log surely has nothing of an epoch yet."""
        return bool(self.epochs) and self.epochs[-1].epoch < epoch

    def as_of(self, epoch: int) -> Bounds:
        """Returns the queue without what later epochs gave, whose first offsets stay known."""
        common = self.common_end(epoch)
        if common is None:
            return self
        return self._replace(max_offset=max(self.min_offset, min(self.max_offset, common)))


@dataclass(frozen=True)
class TopicMetadata:
    """The subscribed queues of a store at one moment.

    Attributes:
        epoch: The store's epoch; no queue shows messages of a later one.
        topic_ids: Subscribed topics that exist, with their ids ("" in a store RocketMQ wrote).
        bounds: What each subscribed queue holds.
        from_slave: A slave said some of it, whose queues may end before its master's.
    """

    epoch: int
    topic_ids: Mapping[str, str]
    bounds: Mapping[MessageQueue, Bounds]
    from_slave: bool = False


@dataclass(frozen=True)
class Offsets:
    """The next queue offset to read, per queue.

    Attributes:
        epoch: The store's epoch when the positions were taken.
        topic_ids: The id of each topic named in ``queues``.
        queues: The next offset of each queue. A queue that is not named starts at 0.
        is_marked: The text says that the epoch is the log's.
    """

    epoch: int
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[MessageQueue, int] = field(default_factory=dict)
    is_marked: bool = field(default=True, compare=False)

    @property
    def says_epoch(self) -> bool:
        """Whether the epoch is the log's for sure, however the store was read."""
        return self.is_marked or self.epoch != 1

    def in_epoch(self, epoch: int) -> Offsets:
        """Returns the same positions as of an epoch of the log."""
        return replace(self, epoch=epoch, is_marked=True)

    def to_json(self) -> dict[str, Any]:
        """Returns the checkpoint's form, in one order whatever the order of the mappings."""
        topics: dict[str, Any] = {}
        for queue in sorted(self.queues):
            entry = topics.setdefault(queue.topic, {"id": self.topic_ids[queue.topic], "brokers": {}})
            entry["brokers"].setdefault(queue.broker_name, {})[str(queue.queue_id)] = self.queues[queue]
        mark = {"epoch_of": _EPOCH_OF} if self.is_marked else {}
        return {"v": VERSION, "epoch": self.epoch, **mark, "topics": topics}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offsets:
        """Reads the checkpoint's form.

        Raises:
            LakeMQError: ARGUMENT_ILLEGAL when it is another version or no offset of this source.
        """
        version = value.get("v") if isinstance(value, Mapping) else None
        if version == VERSION + 1:
            raise illegal(
                "this is an offset of several brokers (version 2), and the endpoint is one broker: give the "
                "name servers, or all of them"
            )
        if version != VERSION:
            raise illegal(f"an offset of version {version!r} cannot be read: this release knows version 1")
        topic_ids: dict[str, str] = {}
        queues: dict[MessageQueue, int] = {}
        try:
            for topic, entry in value["topics"].items():
                topic_ids[topic] = str(entry["id"])
                for broker_name, positions in entry["brokers"].items():
                    for queue_id, offset in positions.items():
                        queues[MessageQueue(topic, broker_name, int(queue_id))] = int(offset)
            return cls(int(value["epoch"]), topic_ids, queues, value.get("epoch_of") == _EPOCH_OF)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise illegal(f"this is not an offset of the lakemq source: {value!r}") from error

    def position(self, queue: MessageQueue) -> int:
        """Returns the next offset to read of a queue; a queue never seen starts at its beginning."""
        return self.queues.get(queue, 0)


def same_topic(before: str | None, now: str | None) -> bool:
    """Says whether two topic ids can be the same topic; a store RocketMQ wrote has no ids."""
    return not before or not now or before == now


def start_in(start: Offsets, end: Offsets, queue: MessageQueue) -> int:
    """Returns where a batch that ends in ``end`` begins to read a queue.

    The positions of ``start`` count only for the same life of the topic and of the store: a batch
    that was planned over a re-created topic begins at 0.
    """
    if not same_topic(start.topic_ids.get(queue.topic), end.topic_ids.get(queue.topic)):
        return 0
    if end.epoch < start.epoch:
        return 0
    return start.position(queue)


def initial(metadata: TopicMetadata, positions: Mapping[MessageQueue, int]) -> Offsets:
    """Returns the offsets of a new query that starts at ``positions``, every queue named."""
    return Offsets(metadata.epoch, _of(metadata.topic_ids, positions), dict(positions))


def advance(
    start: Offsets,
    metadata: TopicMetadata,
    ends: Mapping[MessageQueue, int],
    gone: Set[MessageQueue] = frozenset(),
) -> Offsets:
    """Returns ``start`` moved on to ``ends``.

    Positions of queues that are no longer subscribed are carried along, so that subscribing again
    goes on where it stopped; those in ``gone`` are dropped, and those of a topic's earlier life. A queue
    that was never seen is named even when nothing of it is read yet, so that what becomes of it is
    noticed; but not when nothing else moves: that would make an empty batch.
    """
    carried = {
        queue: offset
        for queue, offset in start.queues.items()
        if queue not in gone
        and queue not in ends
        and metadata.epoch >= start.epoch
        and same_topic(start.topic_ids[queue.topic], metadata.topic_ids.get(queue.topic))
    }
    topic_ids = {queue.topic: start.topic_ids[queue.topic] for queue in carried}
    topic_ids |= {queue.topic: metadata.topic_ids[queue.topic] for queue in ends}
    named = {queue: end for queue, end in ends.items() if end > 0 or queue in start.queues}
    seen = Offsets(metadata.epoch, _of(topic_ids, carried | named), carried | named)
    return seen if seen == start else Offsets(metadata.epoch, topic_ids, carried | dict(ends))


def begins_at(start: Offsets, end: Offsets, queue: MessageQueue, held: Bounds) -> int:
    """Returns the same where it is known what the queue holds: no further than the two logs are one.

    Args:
        start, end: The batch.
        queue: The queue.
        held: What it holds now.
    """
    at = start_in(start, end, queue)
    common = held.common_end(start.epoch)
    return at if common is None else min(at, common)


def still_valid(end: Offsets, metadata: TopicMetadata) -> dict[MessageQueue, Bounds]:
    """Returns what the store holds of the queues in which a planned end still means what it meant.

    A batch that is run again may find a topic made again or an older store: what is there now is
    for a later batch, which begins at 0. It may find a later epoch as well: what that gave is for a later
    batch, too.
    """
    if metadata.epoch < end.epoch:
        return {}
    return {
        queue: bounds.as_of(end.epoch)
        for queue, bounds in metadata.bounds.items()
        if same_topic(end.topic_ids.get(queue.topic), metadata.topic_ids[queue.topic])
    }


def not_behind(
    metadata: TopicMetadata, position: Offsets, covers: Callable[[MessageQueue], bool]
) -> TopicMetadata:
    """Returns what a slave said as if it held all that positions say there was.

    What a slave has not got yet (messages, queues, topics, an epoch), or has no longer, its master may have:
    the query waits where it is. Of one whose log ends in an earlier epoch than the positions nothing is read:
    nobody knows up to where it is the log that they were taken in. One that does not know that itself is not
    believed either.

    Args:
        metadata: What the store said; a master's word is left as it is.
        position: Where the query is.
        covers: Whether a queue belongs to the query.

    Raises:
        Unavailable: Retention has taken what tells a slave where a later epoch than the position's begins.
    """
    if not metadata.from_slave:
        return metadata
    bounds = {
        queue: held
        for queue, held in metadata.bounds.items()
        if queue in position.queues or not held.ends_before(position.epoch)
    }
    topic_ids = dict(metadata.topic_ids)
    for queue, at in position.queues.items():
        if not covers(queue):
            continue
        topic_id = position.topic_ids[queue.topic]
        if not same_topic(topic_ids.setdefault(queue.topic, topic_id), topic_id):
            continue
        held = bounds.get(queue, Bounds(0, at))
        if held.ends_before(position.epoch):
            held = Bounds(held.min_offset, at)
        past = held.past(at, position.epoch)
        if past is not None and past.at_or_before:
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                f"{queue}: a slave, or a master that was promoted a moment ago, does not say up to where its "
                f"log is that of epoch {position.epoch}",
            )
        if past is not None:
            at = past.first_offset
        bounds[queue] = held._replace(
            min_offset=min(held.min_offset, at), max_offset=max(held.max_offset, at)
        )
    return replace(metadata, epoch=max(metadata.epoch, position.epoch), topic_ids=topic_ids, bounds=bounds)


def planned_from(start: Offsets, end: Offsets) -> Offsets:
    """Returns where a planned batch begins to read each of its queues.

    That is no position of a topic's or a store's earlier life: its loss was said when the batch was planned.
    """
    return Offsets(
        min(start.epoch, end.epoch),
        end.topic_ids,
        {queue: start_in(start, end, queue) for queue in end.queues},
    )


def _of(topic_ids: Mapping[str, str], queues: Mapping[MessageQueue, int]) -> dict[str, str]:
    topics = {queue.topic for queue in queues}
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic in topics}


def illegal(detail: str, **context: Any) -> LakeMQError:
    """Builds the error of a wrong option or offset."""
    return from_code("ARGUMENT_ILLEGAL", detail, **context)
