"""What the subscribed queues hold at this moment.

Owns the step from a subscription to queues.

Invariants: names and patterns are looked up at every trigger, so new topics and new queues join a running
query; all queues are shown as of one epoch, though a slave may be promoted between two requests.

Processes: the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from store_native.errors import LakeMQError, from_code
from structured_streaming.offsets import Bounds, MessageQueue, TopicMetadata
from structured_streaming.readers import StoreReader
from structured_streaming.subscription import Subscription


def load(reader: StoreReader, subscription: Subscription) -> TopicMetadata:
    """Reads epoch, topic ids and bounds; topics that do not exist are left out.

    It takes several requests: when a slave answered one of them, the whole may be behind.
    """
    before = reader.slave_answers
    epoch = reader.epoch()
    topic_ids: dict[str, str] = {}
    if subscription.pattern is not None:
        existing = reader.topics()
        topic_ids = {topic: existing[topic] for topic in subscription.matching(existing)}
    else:
        for topic in subscription.named_topics():
            topic_id = reader.topic_id(topic)
            if topic_id is not None:
                topic_ids[topic] = topic_id
    bounds: dict[MessageQueue, Bounds] = {}
    for topic in list(topic_ids):
        held = _bounds(reader, topic)
        if held is None:
            del topic_ids[topic]
            continue
        for queue_id, limits in held.items():
            queue = MessageQueue(topic, reader.broker_name, queue_id)
            if subscription.covers(queue):
                bounds[queue] = limits
    shown = {held.epochs[-1].epoch if held.epochs else epoch for held in bounds.values()}
    epoch = min(shown, default=epoch)
    return TopicMetadata(epoch, topic_ids, _as_of(epoch, bounds), from_slave=reader.slave_answers != before)


def of_one_store(one: TopicMetadata, other: TopicMetadata) -> TopicMetadata:
    """Returns two looks at one store as one; if it was replaced between them, the older counts."""
    epoch = min(one.epoch, other.epoch)
    return TopicMetadata(
        epoch,
        {**other.topic_ids, **one.topic_ids},
        _as_of(epoch, {**other.bounds, **one.bounds}),
        from_slave=one.from_slave or other.from_slave,
    )


def joined(parts: Iterable[TopicMetadata]) -> TopicMetadata:
    """Returns which topics and queues several stores hold together; their ids and epochs are no one's."""
    found = list(parts)
    return TopicMetadata(
        0,
        {topic: topic_id for part in found for topic, topic_id in part.topic_ids.items()},
        {queue: bounds for part in found for queue, bounds in part.bounds.items()},
    )


def check_exists(metadata: TopicMetadata, subscription: Subscription) -> None:
    """Refuses a new query whose topics or queues do not exist: most likely a slip of the pen.

    A pattern may match nothing yet.

    Raises:
        LakeMQError: TOPIC_NOT_EXIST or QUEUE_NOT_EXIST.
    """
    for topic in subscription.named_topics():
        if topic not in metadata.topic_ids:
            raise from_code(
                "TOPIC_NOT_EXIST",
                f"topic {topic} does not exist: create it first (lakemq topic create {topic}), "
                "or use subscribePattern, which waits for topics to come",
                topic=topic,
            )
    for topic, queue_ids in subscription.queues.items():
        missing = queue_ids - {queue.queue_id for queue in metadata.bounds if queue.topic == topic}
        if missing:
            raise from_code("QUEUE_NOT_EXIST", f"topic {topic} has no queue {min(missing)}", topic=topic)


def _as_of(epoch: int, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, Bounds]:
    return {queue: held.as_of(epoch) for queue, held in bounds.items()}


def _bounds(reader: StoreReader, topic: str) -> dict[int, Bounds] | None:
    """The bounds, or None for a topic deleted since it was listed."""
    try:
        return reader.bounds(topic)
    except LakeMQError as error:
        if error.code == "TOPIC_NOT_EXIST":
            return None
        raise
