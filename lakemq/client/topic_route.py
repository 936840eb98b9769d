"""Who holds a topic, and over which brokers it is ordered, as brokers and name servers say it.

Owns the values, how they are read from answers, and which two answers cannot both hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store_native.errors import InvalidRequest
from store_native.names import PERM_READ, PERM_WRITE
from store_native.order_conf import OrderConf


@dataclass(frozen=True, slots=True)
class QueueNums:
    """How many queues of a topic a broker holds, and who may use them (4 read, 2 write).

    Attributes:
        order_conf: The list of brokers that this one has with the topic.
    """

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order_conf: OrderConf | None = None

    @property
    def writable(self) -> int:
        """Queues that take messages."""
        return self.write_queue_nums if self.perm & PERM_WRITE else 0

    @property
    def readable(self) -> int:
        """Queues that are read."""
        return self.read_queue_nums if self.perm & PERM_READ else 0


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Who holds a topic, over which brokers it is ordered, and when that was asked for."""

    holders: dict[str, QueueNums]
    asked_at: float
    order_conf: OrderConf | None = None

    @property
    def sharding_queues(self) -> dict[str, int]:
        """The queues sharding keys are spread over, by broker: those of the list, else all writable ones."""
        if self.order_conf is not None:
            return self.order_conf.write_queue_nums
        return {name: nums.writable for name, nums in self.holders.items() if nums.writable}


def queue_nums(said: Mapping[str, Any]) -> QueueNums:
    """Reads what a broker says of a topic, or a name server of a broker that holds it."""
    # A broker tells the list by the topic's attributes, a name server by itself.
    conf = OrderConf.of_attributes(said.get("attributes")) or OrderConf.of_json(said.get("order_conf"))
    return QueueNums(int(said["read_queue_nums"]), int(said["write_queue_nums"]), int(said["perm"]), conf)


def check_alike(topic: str, conf: OrderConf, holders: Mapping[str, QueueNums]) -> None:
    """Refuses two lists of one version: nobody can say which is the newer one.

    Raises:
        InvalidRequest: TOPIC_CONFLICT.
    """
    of_version = {
        nums.order_conf.brokers: name
        for name, nums in holders.items()
        if nums.order_conf is not None and nums.order_conf.version == conf.version
    }
    if of_version.keys() - {conf.brokers}:
        have = ", ".join(f"{name} has {brokers}" for brokers, name in sorted(of_version.items()))
        raise InvalidRequest(
            "TOPIC_CONFLICT",
            f"topic {topic} is ordered over two lists of version {conf.version}, {have}: say which one "
            f"holds, lakemq topic order {topic} --brokers NAMES --execute",
            topic=topic,
        )
