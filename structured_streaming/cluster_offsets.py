"""Positions in the queues of several brokers, as a Spark checkpoint keeps them.

Owns the second form of the offset JSON, which is final because checkpoints outlive releases:

    {"v":2,"brokers":{"broker-a":{"epoch":1,"topics":{"orders":{"id":"<topic id>","queues":{"0":12,"1":7}}}}}}

Each broker has a log, an epoch and topic ids of its own. Positions in one broker's queues have the first form
(offsets.py), however the broker was found, so a query may go from a broker's address to a name server's.

Invariants: equal positions give equal JSON text, because Spark compares offsets as text. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from structured_streaming.offsets import MessageQueue, Offsets, illegal

VERSION = 2


@dataclass(frozen=True)
class ClusterOffsets:
    """The next queue offset to read, per broker and queue.

    Attributes:
        brokers: The positions in each broker's queues, by broker name.
    """

    brokers: Mapping[str, Offsets] = field(default_factory=dict)

    @property
    def queues(self) -> dict[MessageQueue, int]:
        """The next offset of every queue."""
        return {queue: at for offsets in self.brokers.values() for queue, at in offsets.queues.items()}

    def to_json(self) -> dict[str, Any]:
        """Returns the checkpoint's form, in one order whatever the order of the mappings."""
        if len(self.brokers) == 1:
            return next(iter(self.brokers.values())).to_json()
        return {
            "v": VERSION,
            "brokers": {name: _to_json(self.brokers[name]) for name in sorted(self.brokers)},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClusterOffsets:
        """Reads either form.

        Raises:
            LakeMQError: ARGUMENT_ILLEGAL when it is another version or no offset of this source.
        """
        if not isinstance(value, Mapping) or value.get("v") != VERSION:
            return cls.of(Offsets.from_json(value))
        try:
            return cls({name: _from_json(name, broker) for name, broker in value["brokers"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise illegal(f"this is not an offset of the lakemq source: {value!r}") from error

    @classmethod
    def of(cls, offsets: Offsets) -> ClusterOffsets:
        """Takes what was positions of one store; one without a queue says nothing of any broker."""
        found: dict[str, Offsets] = {}
        for name in sorted({queue.broker_name for queue in offsets.queues}):
            queues = {queue: at for queue, at in offsets.queues.items() if queue.broker_name == name}
            ids = {queue.topic: offsets.topic_ids[queue.topic] for queue in queues}
            found[name] = Offsets(offsets.epoch, ids, queues, offsets.is_marked)
        return cls(found)


def _to_json(offsets: Offsets) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for queue in sorted(offsets.queues):
        entry = topics.setdefault(queue.topic, {"id": offsets.topic_ids[queue.topic], "queues": {}})
        entry["queues"][str(queue.queue_id)] = offsets.queues[queue]
    return {"epoch": offsets.epoch, "topics": topics}


def _from_json(name: str, broker: Mapping[str, Any]) -> Offsets:
    topic_ids: dict[str, str] = {}
    queues: dict[MessageQueue, int] = {}
    for topic, entry in broker["topics"].items():
        topic_ids[topic] = str(entry["id"])
        for queue_id, at in entry["queues"].items():
            queues[MessageQueue(topic, name, int(queue_id))] = int(at)
    return Offsets(int(broker["epoch"]), topic_ids, queues)
