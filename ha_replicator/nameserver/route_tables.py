"""The name server's four tables: topics, brokers, clusters, heartbeats.

Owns who holds which topic.

Invariants: a topic's row names only registered brokers, and a broker without a heartbeat for
``heartbeat_timeout_s`` is gone from every table. The list of an ordered topic is not: it says who else there
should be, and goes when all brokers that it names are here and none has it. Name servers do not talk to each
other and push nothing; clients ask.

Threads: the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ha_replicator.identity import MASTER_ID
from ha_replicator.nameserver.registration import BrokerRegistration, QueueData
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf, newest

HEARTBEAT_TIMEOUT_S = 120.0
MOST_ORDER_CONFS = 100_000
"""Of so many ordered topics the list is remembered while the brokers that told it are away."""


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses behind one broker name, by broker id, and the epoch of the master if there is one.

    ``parted`` are the ids of slaves whose log is not the master's.
    """

    cluster: str
    broker_name: str
    addresses: dict[int, str]
    epoch: int | None = None
    parted: set[int] = field(default_factory=set)

    def to_read(self) -> BrokerData:
        """Returns the same without those that nobody is to read."""
        kept = {key: address for key, address in self.addresses.items() if key not in self.parted}
        return replace(self, addresses=kept)


@dataclass(frozen=True, slots=True)
class Route:
    """Who holds a topic: queue data by broker name, and those brokers.

    Attributes:
        order_conf: The newest list of brokers of an ordered topic; it may name some that hold nothing now.
    """

    queues: dict[str, QueueData]
    brokers: list[BrokerData]
    order_conf: OrderConf | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration came to.

    Attributes:
        topics_wanted: The table behind ``data_version`` is not known here; send it.
        master_address: The master of the broker name, for a slave that asks; None without one.
        master_replication_address: Where that master's slaves connect.
    """

    topics_wanted: bool
    master_address: str | None
    master_replication_address: str | None


@dataclass(slots=True)
class _Live:
    registration: BrokerRegistration
    seen_at: float
    pinned: bool


@dataclass(slots=True)
class RouteTables:
    """Keeps registrations and answers routes.

    Args:
        heartbeat_timeout_s: A broker silent for longer is dropped, and for at least three of its heartbeats.
        clock: Seconds, never going back.
    """

    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    clock: Callable[[], float] = time.monotonic
    _live: dict[tuple[str, int], _Live] = field(default_factory=dict)
    _topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    _held: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    # Of the table that is held: a heartbeat may come before its table.
    _versions: dict[str, str] = field(default_factory=dict)
    _order_confs: dict[str, OrderConf] = field(default_factory=dict)

    def register(self, registration: BrokerRegistration, *, pinned: bool = False) -> Registered:
        """Takes a registration: a new broker, a changed table, or a heartbeat.

        Args:
            registration: What the broker says of itself.
            pinned: Lives as long as this process (the broker the name server sits in).

        Raises:
            InvalidRequest: BROKER_CONFLICT, the master of a higher epoch, or another broker, has this place.
        """
        key = (registration.broker_name, registration.broker_id)
        known = self._live.get(key)
        is_master = registration.broker_id == MASTER_ID
        if known is not None and not self._is_late(known, self.clock()):
            _check_place(registration, known.registration)
        same = self._versions.get(registration.broker_name) == registration.data_version
        self._live[key] = _Live(registration, self.clock(), pinned)
        # A slave copies its master's topics, so only the master's table counts.
        if is_master and registration.topics is not None and not same:
            self._hold(registration.broker_name, registration.topics)
            self._versions[registration.broker_name] = registration.data_version
        master = self._live.get((registration.broker_name, MASTER_ID))
        return Registered(
            topics_wanted=is_master and registration.topics is None and not same,
            master_address=master.registration.address if master else None,
            master_replication_address=master.registration.replication_address if master else None,
        )

    def put_topic(self, broker_name: str, topic: str, queues: QueueData | None) -> None:
        """Sets or takes away one topic of a registered broker, between two registrations."""
        held = self._held.get(broker_name)
        if held is None:
            return
        if queues is not None:
            held[topic] = queues
            self._put(broker_name, topic, queues)
        elif held.pop(topic, None) is not None:
            self._drop(broker_name, topic)

    def unregister(self, broker_name: str, broker_id: int, store_id: str = "") -> bool:
        """Drops one broker at once; returns whether it was there, and not another of another store."""
        known = self._live.get((broker_name, broker_id))
        if known is None or (store_id and known.registration.store_id not in ("", store_id)):
            return False
        del self._live[broker_name, broker_id]
        if not any(name == broker_name for name, _ in self._live):
            self._hold(broker_name, {})
            del self._held[broker_name]
            self._versions.pop(broker_name, None)
        return True

    def expire(self) -> list[tuple[str, int]]:
        """Drops the brokers that sent no heartbeat in time; returns their names and ids."""
        now = self.clock()
        dead = [key for key, live in self._live.items() if self._is_late(live, now)]
        for broker_name, broker_id in dead:
            self.unregister(broker_name, broker_id)
        return dead

    def is_pinned(self, broker_name: str, broker_id: int) -> bool:
        """Says whether this is the broker the name server sits in."""
        live = self._live.get((broker_name, broker_id))
        return live is not None and live.pinned

    def route(self, topic: str) -> Route | None:
        """Returns who holds a topic; None when nobody does, and no list says who should."""
        self.expire()
        queues = self._topics.get(topic, {})
        order_conf = self._order_conf(topic, queues)
        if not queues and order_conf is None:
            return None
        brokers = [data.to_read() for data in self.brokers() if data.broker_name in queues]
        return Route(dict(queues), brokers, order_conf)

    def brokers(self) -> list[BrokerData]:
        """Returns all live brokers, sorted by name."""
        found: dict[str, BrokerData] = {}
        for (name, broker_id), live in sorted(self._live.items()):
            # The master's id is the lowest.
            epoch = live.registration.epoch if broker_id == MASTER_ID else None
            data = found.setdefault(name, BrokerData(live.registration.cluster, name, {}, epoch))
            data.addresses[broker_id] = live.registration.address
            if live.registration.log_parted:
                data.parted.add(broker_id)
        return list(found.values())

    def _is_late(self, live: _Live, now: float) -> bool:
        # One that says how often it comes is late by that.
        timeout_s = max(self.heartbeat_timeout_s, 3 * live.registration.heartbeat_s)
        return not live.pinned and now - live.seen_at > timeout_s

    def _hold(self, broker_name: str, topics: dict[str, QueueData]) -> None:
        for topic in self._held.get(broker_name, {}):
            self._drop(broker_name, topic)
        for topic, queues in topics.items():
            self._put(broker_name, topic, queues)
        self._held[broker_name] = dict(topics)

    def _put(self, broker_name: str, topic: str, queues: QueueData) -> None:
        self._topics.setdefault(topic, {})[broker_name] = queues
        conf = newest((queues.order_conf, self._order_confs.get(topic)))
        if conf is not None:
            self._order_confs[topic] = conf
            if len(self._order_confs) > MOST_ORDER_CONFS:
                del self._order_confs[next(iter(self._order_confs))]

    def _order_conf(self, topic: str, queues: dict[str, QueueData]) -> OrderConf | None:
        told = newest(held.order_conf for held in queues.values())
        kept = self._order_confs.get(topic)
        if told is None and kept is not None and kept.write_queue_nums.keys() <= self._held.keys():
            # The topic was deleted, and perhaps made again as one that is not ordered.
            del self._order_confs[topic]
            return None
        return newest((told, kept))

    def _drop(self, broker_name: str, topic: str) -> None:
        holders = self._topics[topic]
        holders.pop(broker_name, None)
        if not holders:
            del self._topics[topic]


def _check_place(registration: BrokerRegistration, known: BrokerRegistration) -> None:
    """Refuses a registration in the place of a broker that lives."""
    if registration.broker_id == MASTER_ID and registration.epoch != known.epoch:
        if registration.epoch > known.epoch:
            return
        raise InvalidRequest(
            "BROKER_CONFLICT",
            f"{registration.broker_name} has a master of epoch {known.epoch} at {known.address}; "
            f"this one is of epoch {registration.epoch}",
            epoch=known.epoch,
        )
    if registration.store_id and known.store_id and registration.store_id != known.store_id:
        raise InvalidRequest(
            "BROKER_CONFLICT",
            f"{registration.broker_name} with id {registration.broker_id} is another broker, at "
            f"{known.address}: give this one another name, or a slave another id",
        )
