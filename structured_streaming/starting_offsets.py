"""Where a read starts and ends when no checkpoint says it.

Owns the kinds of position (earliest, latest, offsets, times, a group's committed offsets) and their
resolution to one number per queue. Look-ups come through the port, so the arithmetic is testable without a
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Bounds, MessageQueue, Offsets, TopicMetadata, illegal

NoMatch = Literal["latest", "error"]
QueueId = tuple[str, int]
OFFSET_LATEST, OFFSET_EARLIEST = -1, -2


@dataclass(frozen=True)
class Earliest:
    """The oldest message a queue still holds."""


@dataclass(frozen=True)
class Latest:
    """Behind the newest message."""


EARLIEST, LATEST = Earliest(), Latest()


@dataclass(frozen=True)
class Explicit:
    """One number per (topic, queue): an offset, -1 for latest, -2 for earliest."""

    offsets: Mapping[QueueId, int]

    @classmethod
    def from_checkpoint(cls, value: Mapping[str, Any]) -> Explicit:
        """Takes the first form of a checkpoint; a topic's id and the epoch are not compared."""
        positions = Offsets.from_json(value).queues
        return cls({(queue.topic, queue.queue_id): offset for queue, offset in positions.items()})

    def values(self) -> Iterable[int]:
        """Returns the numbers."""
        return self.offsets.values()


@dataclass(frozen=True)
class ByBroker:
    """Numbers for the queues of several brokers, each an offset (as in Explicit) or a time (ByTimestamps).

    Attributes:
        numbers: (topic, broker name, queue id) -> number; the broker's name is "" where it holds for all.
        no_match: Of times; None for offsets.
    """

    numbers: Mapping[tuple[str, str, int], int]
    no_match: NoMatch | None = None

    @classmethod
    def from_checkpoint(cls, value: Mapping[str, Any]) -> ByBroker:
        """Takes the second form of a checkpoint; a topic's id and the epochs are not compared."""
        return cls(
            {
                (queue.topic, queue.broker_name, queue.queue_id): at
                for queue, at in ClusterOffsets.from_json(value).queues.items()
            }
        )

    def values(self) -> Iterable[int]:
        """Returns the numbers."""
        return self.numbers.values()

    def names(self, broker_name: str) -> bool:
        """Says whether a broker is named."""
        return any(name == broker_name for _, name, _ in self.numbers)

    def of(self, broker_name: str) -> Explicit | ByTimestamps:
        """Returns what is said of one broker."""
        own = {(t, q): n for (t, name, q), n in self.numbers.items() if name == broker_name}
        said = {(t, q): n for (t, name, q), n in self.numbers.items() if not name} | own
        return Explicit(said) if self.no_match is None else ByTimestamps(said, self.no_match)


@dataclass(frozen=True)
class SinceTimestamp:
    """The first message stored at or after a time (epoch ms), in every queue."""

    timestamp: int
    no_match: NoMatch


@dataclass(frozen=True)
class ByTimestamps:
    """As SinceTimestamp, with a time of its own for each queue."""

    timestamps: Mapping[QueueId, int]
    no_match: NoMatch


@dataclass(frozen=True)
class GroupPosition:
    """A consumer group's committed offsets; where it has none, ``fallback``."""

    fallback: Earliest | Latest


Position = Earliest | Latest | Explicit | ByBroker | SinceTimestamp | ByTimestamps | GroupPosition


@dataclass(frozen=True)
class Lookups:
    """What resolving may ask the store.

    Attributes:
        offset_by_time: (queue, epoch ms) -> first offset stored then or later; the end when none.
        group_offsets: () -> the group's committed offsets, (topic, queue id) -> next offset.
    """

    offset_by_time: Callable[[MessageQueue, int], int]
    group_offsets: Callable[[], Mapping[QueueId, int]]


def resolve(
    position: Position, metadata: TopicMetadata, lookups: Lookups, option: str
) -> dict[MessageQueue, int]:
    """Returns one offset per queue of the metadata.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL when explicit values do not name exactly the queues of the
            metadata, lie behind a queue's end, or when no message is as young as asked for.
    """
    match position:
        case Earliest():
            return {queue: bounds.min_offset for queue, bounds in metadata.bounds.items()}
        case Latest():
            return {queue: bounds.max_offset for queue, bounds in metadata.bounds.items()}
        case Explicit(offsets):
            _check_names(metadata, offsets, option)
            behind = metadata.from_slave
            return {
                q: _explicit(q, b, offsets[q.topic, q.queue_id], option, may_be_behind=behind)
                for q, b in metadata.bounds.items()
            }
        case ByBroker():
            found: dict[MessageQueue, int] = {}
            for name in sorted({queue.broker_name for queue in metadata.bounds}):
                own = {queue: held for queue, held in metadata.bounds.items() if queue.broker_name == name}
                part = replace(metadata, bounds=own)
                found |= resolve(position.of(name), part, lookups, option)
            return found
        case SinceTimestamp(timestamp, no_match):
            return {q: _by_time(q, b, timestamp, no_match, lookups) for q, b in metadata.bounds.items()}
        case ByTimestamps(timestamps, no_match):
            _check_names(metadata, timestamps, option)
            return {
                q: _by_time(q, b, timestamps[q.topic, q.queue_id], no_match, lookups)
                for q, b in metadata.bounds.items()
            }
        case GroupPosition(fallback):
            return _by_group(metadata, lookups.group_offsets(), fallback)


def with_new_queues(
    position: Position, metadata: TopicMetadata, broker_name: str, *, topics_go: bool
) -> Position:
    """Returns offsets that name every queue of a broker: a new one begins at its first message.

    Args:
        position: What was decided once; what is no offsets is returned as it is.
        metadata: What the broker holds now.
        broker_name: The broker.
        topics_go: A topic that is no longer there is left out; else it is named, and refused.
    """
    if isinstance(position, ByBroker):
        position = position.of(broker_name)
    if not isinstance(position, Explicit):
        return position
    there = {(queue.topic, queue.queue_id): OFFSET_EARLIEST for queue in metadata.bounds}
    known = {
        queue: at for queue, at in position.offsets.items() if not topics_go or queue[0] in metadata.topic_ids
    }
    return Explicit(there | known)


def joining(
    position: Position, metadata: TopicMetadata, committed: Mapping[QueueId, int]
) -> dict[MessageQueue, int]:
    """Returns where each queue of a broker begins that comes to a running query.

    That is the offset by which ``position`` names it, else the group's committed offset, else its oldest
    message. Nothing of it that moves by itself (latest, a time) counts: asked again, it must be the same.

    Args:
        position: Where the query began.
        metadata: What the broker holds.
        committed: The committed offsets of the query's group there; none without a group.
    """
    named = position.numbers if isinstance(position, ByBroker) and position.no_match is None else {}
    found: dict[MessageQueue, int] = {}
    for queue, held in metadata.bounds.items():
        at = named.get((queue.topic, queue.broker_name, queue.queue_id), OFFSET_EARLIEST)
        if at < 0:
            reached = committed.get((queue.topic, queue.queue_id), held.min_offset)
            end = reached if metadata.from_slave else held.max_offset
            at = max(held.min_offset, min(reached, end))
        found[queue] = at
    return found


def _check_names(metadata: TopicMetadata, given: Mapping[QueueId, int], option: str) -> None:
    existing = {(queue.topic, queue.queue_id) for queue in metadata.bounds}
    missing, unknown = sorted(existing - given.keys()), sorted(given.keys() - existing)
    if missing:
        raise illegal(
            f"{option} must name every queue that is read; missing {_names(missing)}", option=option
        )
    if unknown:
        raise illegal(f"{option} names queues that are not read: {_names(unknown)}", option=option)


def _names(queues: list[QueueId]) -> str:
    return ", ".join(f"{topic}/{queue_id}" for topic, queue_id in queues[:8])


def _explicit(queue: MessageQueue, bounds: Bounds, offset: int, option: str, *, may_be_behind: bool) -> int:
    if offset == OFFSET_LATEST:
        return bounds.max_offset
    if offset == OFFSET_EARLIEST:
        return bounds.min_offset
    if offset > bounds.max_offset and not may_be_behind:
        raise illegal(f"{option}: {queue} ends at {bounds.max_offset}, before {offset}", option=option)
    return offset


def _by_time(queue: MessageQueue, bounds: Bounds, timestamp: int, no_match: NoMatch, lookups: Lookups) -> int:
    if bounds.min_offset >= bounds.max_offset:
        return bounds.max_offset
    offset = lookups.offset_by_time(queue, timestamp)
    if offset >= bounds.max_offset and no_match == "error":
        raise illegal(f"{queue} has no message stored at or after {timestamp}")
    return min(offset, bounds.max_offset)


def _by_group(
    metadata: TopicMetadata, committed: Mapping[QueueId, int], fallback: Earliest | Latest
) -> dict[MessageQueue, int]:
    """Returns where each queue begins that a group reads.

    One that the group never reported on begins at its start if the group knows the topic (the queue is new),
    else at the fallback (the topic is new to the group).
    """
    known = {topic for topic, _ in committed}
    positions: dict[MessageQueue, int] = {}
    for queue, bounds in metadata.bounds.items():
        if queue.topic in known:
            positions[queue] = committed.get((queue.topic, queue.queue_id), bounds.min_offset)
        else:
            positions[queue] = bounds.min_offset if fallback == EARLIEST else bounds.max_offset
    return positions
