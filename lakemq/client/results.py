"""What the broker's answers become: small frozen values, one per kind of answer.

Owns the shapes only; field names are the API's own. Every ``from_json`` ignores fields it does not know, so
an older client reads a newer broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lakemq.client.message import ReceivedMessage
from store_native.order_conf import OrderConf

if TYPE_CHECKING:
    import pyarrow as pa


class MessageQueue(NamedTuple):
    """One queue of a topic, on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where one message was stored.

    Attributes:
        status: ``SEND_OK``, or one of FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT,
            SLAVE_NOT_AVAILABLE: stored too, but less safely than the broker's policy asks.
        duplicate: The Idempotency-Key was seen before; this is the first answer again.
        scheduled: The message waits for its delay: queue_id, queue_offset and offset_message_id are its
            place in the schedule, SCHEDULE_TOPIC_XXXX. It gets one in its topic when it is delivered.
        repeated_elsewhere: An earlier attempt, at another broker, got no answer: the message may be stored
            there too, under the same message id only if the caller gave one.
    """

    status: str
    message_id: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    duplicate: bool = False
    scheduled: bool = False
    repeated_elsewhere: bool = False

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> SendResult:
        """Builds the result from the API's object."""
        return cls(
            status=answer["status"],
            message_id=answer["message_id"],
            offset_message_id=answer["offset_message_id"],
            topic=answer["topic"],
            broker_name=answer["broker_name"],
            queue_id=int(answer["queue_id"]),
            queue_offset=int(answer["queue_offset"]),
            duplicate=bool(answer.get("duplicate", False)),
            scheduled=bool(answer.get("scheduled", False)),
        )


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A run of messages stored in one queue: offsets first_queue_offset .. +count-1.

    ``scheduled`` means what it means in :class:`SendResult`.
    """

    queue_id: int
    first_queue_offset: int
    count: int
    scheduled: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Where many messages were stored; all of them or none are.

    ``status``, ``duplicate`` and ``repeated_elsewhere`` mean what they mean in :class:`SendResult`.

    Attributes:
        results: One result per message in the order sent, when they were asked for.
        broker_name: Which of several brokers took them; empty where the endpoint is one broker's.
    """

    status: str
    count: int
    queues: tuple[QueueRange, ...]
    duplicate: bool = False
    results: tuple[SendResult, ...] = ()
    repeated_elsewhere: bool = False
    broker_name: str = ""

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> BatchResult:
        """Builds the result from the API's object (also from the answer to a single message)."""
        if "count" not in answer:
            one = SendResult.from_json(answer)
            where = QueueRange(one.queue_id, one.queue_offset, 1, one.scheduled)
            return cls(one.status, 1, (where,), one.duplicate, (one,))
        queues = tuple(
            QueueRange(
                int(q["queue_id"]),
                int(q["first_queue_offset"]),
                int(q["count"]),
                bool(q.get("scheduled", False)),
            )
            for q in answer["queues"]
        )
        # One status and one duplicate flag hold for the whole request.
        shared = {"status": answer["status"], "duplicate": answer.get("duplicate", False)}
        results = tuple(SendResult.from_json({**one, **shared}) for one in answer.get("results") or ())
        return cls(shared["status"], int(answer["count"]), queues, bool(shared["duplicate"]), results)


@dataclass(frozen=True, slots=True)
class PullResult:
    """One read of a queue.

    Attributes:
        status: FOUND, NO_NEW_MSG (at the end), NO_MATCHED_MSG (some were there, the tags fit none)
            or OFFSET_ILLEGAL (outside min..max: continue at next_offset and say what was skipped).
        next_offset: Where to pull next.
        damaged: Ranges [from, to) of queue offsets the store skipped because their bytes fail the
            checksum; none of their messages is among ``messages``.
        from_slave: A slave gave it, or a synchronous master whose slaves do not follow yet: what it lacks at
            the end its master, or itself later, may have.
    """

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...]
    damaged: tuple[tuple[int, int], ...] = ()
    from_slave: bool = False

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> PullResult:
        """Builds the result from the API's object."""
        return cls(
            status=answer["status"],
            next_offset=int(answer["next_offset"]),
            min_offset=int(answer["min_offset"]),
            max_offset=int(answer["max_offset"]),
            messages=tuple(ReceivedMessage.from_json(m) for m in answer["messages"]),
            damaged=tuple((int(start), int(end)) for start, end in answer.get("damaged") or ()),
        )


@dataclass(frozen=True, slots=True)
class ArrowPull:
    """One read of a queue as a record batch; the other fields as in :class:`PullResult`.

    Attributes:
        damaged: Ranges [from, to) of queue offsets the store skipped because their bytes fail the
            checksum.
        from_slave: As in :class:`PullResult`.
        epoch: Of the newest bytes of the broker's log, once all of it was read; 0: the broker does not say.
    """

    batch: pa.RecordBatch
    next_offset: int
    min_offset: int
    max_offset: int
    status: str
    damaged: tuple[tuple[int, int], ...] = ()
    from_slave: bool = False
    epoch: int = 0


class QueueEpoch(NamedTuple):
    """An epoch of a broker's log, and the first queue offset that it, or a later one, gave.

    ``at_or_before``: it may have been an earlier one, which retention has taken.
    """

    epoch: int
    first_offset: int
    at_or_before: bool = False


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The offsets a queue holds: min_offset <= offset < confirmed_offset can be read.

    ``from_slave`` means what it means in :class:`PullResult`. ``epochs`` are those that the broker's log is
    made of, oldest first; of those of which the same is told there is only the newest. A broker of an older
    release says none.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    confirmed_offset: int
    from_slave: bool = False
    epochs: tuple[QueueEpoch, ...] = ()

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> QueueBounds:
        """Builds the bounds from the API's object."""
        return cls(
            int(answer["queue_id"]),
            int(answer["min_offset"]),
            int(answer["max_offset"]),
            int(answer["confirmed_offset"]),
            epochs=tuple(
                QueueEpoch(int(at["epoch"]), int(at["first_offset"]), bool(at.get("at_or_before")))
                for at in answer.get("epochs", ())
            ),
        )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic.

    ``perm`` is a sum of 4 (read), 2 (write) and 1 (inherit); ``topic_id`` changes when a topic is deleted and
    made again.
    """

    topic: str
    topic_id: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    system: bool = False

    @property
    def order_conf(self) -> OrderConf | None:
        """The list of brokers of an ordered topic."""
        return OrderConf.of_attributes(self.attributes)

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> TopicConfig:
        """Builds the topic from the API's object."""
        return cls(
            topic=answer["topic"],
            topic_id=str(answer.get("topic_id", "")),
            read_queue_nums=int(answer["read_queue_nums"]),
            write_queue_nums=int(answer["write_queue_nums"]),
            perm=int(answer["perm"]),
            attributes=dict(answer.get("attributes") or {}),
            system=bool(answer.get("system", False)),
        )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A consumer group."""

    group: str
    retry_max_times: int = 16
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    attributes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> GroupConfig:
        """Builds the group from the API's object."""
        return cls(
            group=answer["group"],
            retry_max_times=int(answer.get("retry_max_times", 16)),
            consume_enable=bool(answer.get("consume_enable", True)),
            consume_broadcast_enable=bool(answer.get("consume_broadcast_enable", True)),
            attributes=dict(answer.get("attributes") or {}),
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one owner to drive a group until ``expires_at`` (epoch ms).

    ``epoch`` grows with each new owner and fences the commits of the old one.
    """

    epoch: int
    expires_at: int


COMMIT_OK = "COMMIT_OK"
KEPT_ASIDE = "KEPT_ASIDE"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a group's offsets.

    Attributes:
        status: ``COMMIT_OK``: they are as safe as the broker's policy says. FLUSH_DISK_TIMEOUT,
            FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: stored, but less safely. ``KEPT_ASIDE``: the master is
            away, and a slave keeps them on its disk; it shows them, and offers them to its next master, who
            takes those that move the group on.
    """

    status: str

    @property
    def is_kept_aside(self) -> bool:
        """Whether a slave keeps them for the next master."""
        return self.status == KEPT_ASIDE


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """One queue of a reset (or of its preview).

    Attributes:
        from_offset: The group's committed offset; None when it never committed here.
        to_offset: Where it would start, or now starts.
        redelivered: How many messages are delivered again.
        skipped: How many messages the group will never get.
    """

    topic: str
    queue_id: int
    from_offset: int | None
    to_offset: int
    redelivered: int
    skipped: int
