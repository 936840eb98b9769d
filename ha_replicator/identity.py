"""Who a broker is to the others of its name.

Owns names, roles and how a broker says them. Values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MASTER_ID = 0
MAX_EPOCH_STEP = 1 << 20
"""Who says it heard of an epoch further away is not believed: it would be the last of all epochs soon."""


class BrokerRole(Enum):
    """RocketMQ's roles.

    An asynchronous master acknowledges by its own disk, a synchronous one when a slave has the message too.
    """

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    SLAVE = "slave"


def next_epoch(seen: int, broker_id: int) -> int:
    """Returns the epoch that a broker begins when it is promoted.

    Higher than all it heard of, and no other broker's: two that are promoted without knowing of each other
    (their ids less than 64 apart) do not both become the master of one epoch.
    """
    return seen + 1 + (broker_id - seen - 1) % BROKERS_OF_A_NAME


BROKERS_OF_A_NAME = 64


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """One broker.

    Attributes:
        broker_name: Master and slaves of one log share it.
        broker_id: 0 is the master.
    """

    cluster: str
    broker_name: str
    broker_id: int


class HaProtocol(Enum):
    """What is spoken between master and slave: LakeMQ's own protocol, or RocketMQ's."""

    LAKEMQ = "lakemq"
    ROCKETMQ = "rocketmq"


class LinkClosed(Exception):
    """A replication connection is of no more use.

    Attributes:
        code: What happened, in one word.
        detail: One sentence for a person.
        farewell: What goes to the other side before the connection is closed.
        epoch: The highest epoch that either side said it had heard of, once it had proved who it is; else 0.
    """

    def __init__(self, code: str, detail: str, *, farewell: Sequence[bytes] = (), epoch: int = 0) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.farewell = farewell
        self.epoch = epoch
