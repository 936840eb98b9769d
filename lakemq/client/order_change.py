"""The list of brokers of an ordered topic: what giving it, or another one, would do, and doing it.

Owns the plan of a change, and which brokers are asked before anything is changed.

Invariants: nothing is changed unless every broker of the new list answered; every change has a version above
all that were heard of; a broker that has another list is named.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemq.client.admin_api import AdminApi
from lakemq.client.results import TopicConfig
from lakemq.client.routes import Routes
from lakemq.client.topic_route import QueueNums
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from store_native.order_conf import OrderConf, newest
from store_native.sharding import in_order, of_sharding_key

DEFAULT_QUEUES = 4
"""Of a topic that is made, at each broker that is named without a number."""
SAMPLE_KEYS = 10_000
"""Of so many keys it is worked out where they go."""


@dataclass(frozen=True, slots=True)
class OrderedBroker:
    """One broker before and after a change.

    Attributes:
        queues_before: Its queues that sharding keys go to; None where they go to none.
        queues_after: The same by the new list.
        state: What it has of the new list: ``in force``, ``not yet``, or why it is not known.
    """

    broker_name: str
    queues_before: int | None
    queues_after: int | None
    state: str


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A list of brokers that is given to a topic.

    Attributes:
        topic: The topic.
        before: The list that counted before; None: the topic was not ordered.
        order_conf: The list that counts then; it is ``before`` where that names the same.
        moved: Which share of sharding keys goes to another queue than before, 0 to 1, worked out with
            SAMPLE_KEYS keys. Before a topic is ordered, keys go to all queues that a client knows of.
        brokers: Those of both lists, and all that hold the topic, by name.
        is_done: Whether it was carried out; else this is what it would do.
    """

    topic: str
    before: OrderConf | None
    order_conf: OrderConf
    moved: float
    brokers: tuple[OrderedBroker, ...]
    is_done: bool

    @property
    def lacking(self) -> tuple[str, ...]:
        """The brokers that do not have the list."""
        return tuple(broker.broker_name for broker in self.brokers if broker.state != IN_FORCE)


IN_FORCE = "in force"
_CONFLICT = "TOPIC_CONFLICT"
_NOT_YET = "not yet"


@dataclass(slots=True)
class _Found:
    """What the brokers say of a topic."""

    brokers: Mapping[str, AdminApi]
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)

    @property
    def confs(self) -> dict[str, OrderConf]:
        found = {name: config.order_conf for name, config in self.configs.items()}
        return {name: conf for name, conf in found.items() if conf is not None}

    @property
    def holders(self) -> dict[str, QueueNums]:
        return {
            name: QueueNums(config.read_queue_nums, config.write_queue_nums, config.perm, config.order_conf)
            for name, config in self.configs.items()
        }

    @property
    def writable(self) -> dict[str, int]:
        """Where the keys of a topic that is not ordered go: a broker that is drained has none."""
        return {name: nums.writable for name, nums in self.holders.items() if nums.writable}


def order_topic(
    topic: str,
    brokers: Sequence[str] | Mapping[str, int] | None,
    *,
    known: Mapping[str, AdminApi],
    routes: Routes | None,
    queues: int | None,
    dry_run: bool,
    settings: Mapping[str, Any],
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> OrderChange:
    """Gives a topic its list of brokers; see :meth:`lakemq.client.Client.order_topic`.

    Args:
        topic: The topic.
        brokers: Those of the list.
        known: A client of each broker that is known.
        routes: Those of several brokers; None where there is one.
        queues: Write queues at each that is named without a number.
        dry_run: Changes nothing.
        settings: What else of the topic is set, by name.
        now_ms: Epoch milliseconds.
    """
    _check_brokers(brokers)
    found = _ask(topic, known)
    heard = [*found.confs.values(), _remembered(topic, routes)]
    before = newest(heard)
    wanted = _wanted(found, before, brokers, queues, routes, is_shown=dry_run and brokers is None)
    _check_read_queues(wanted, settings.get("read_queue_nums"))
    conf = OrderConf.of(1 if before is None else before.version, wanted)
    alike = {one.brokers for one in heard if one is not None and one.version == conf.version}
    if before is None or alike != {conf.brokers}:
        newer = max(now_ms(), 1 if before is None else before.version + 1)
        conf = OrderConf.of(newer, wanted)
    had = found.writable if before is None else before.write_queue_nums
    if not dry_run:
        _carry_out(found, topic, before, conf, settings)
        if routes is not None:
            routes.note_order_conf(topic, conf, found.holders)
    rows = tuple(_row(name, found, had, conf) for name in sorted({*had, *wanted, *found.configs}))
    moved = moved_share(had, wanted) if had else 0.0
    return OrderChange(topic, before, conf, moved, rows, is_done=not dry_run)


def moved_share(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Returns which share of sharding keys is at another queue by the second list.

    >>> moved_share({"a": 4}, {"a": 4}), round(moved_share({"a": 4}, {"b": 4}))
    (0.0, 1)
    """
    one, two = _places(before), _places(after)
    return sum(first != second for first, second in zip(one, two, strict=True)) / SAMPLE_KEYS


def _places(write_queue_nums: Mapping[str, int]) -> list[tuple[str, int]]:
    order = in_order(write_queue_nums)
    found = []
    for number in range(SAMPLE_KEYS):
        key = f"{zlib.crc32(b'%d' % number):08x}"
        name = of_sharding_key(key, order)
        found.append((name, _queue_of(key, write_queue_nums[name])))
    return found


def _queue_of(sharding_key: str, queues: int) -> int:
    """The queue that a broker chooses: Java's hash of the key, modulo."""
    value = 0
    for character in sharding_key.encode("ascii"):
        value = (31 * value + character) & 0xFFFF_FFFF
    return (value - (1 << 32) if value >= 1 << 31 else value) % queues


def _check_brokers(brokers: object) -> None:
    if brokers is None:
        return
    is_list = isinstance(brokers, Collection) and all(isinstance(name, str) for name in brokers)
    # A text is a list of texts, too: its characters.
    if isinstance(brokers, str) or not is_list:
        what = f"brokers: is {brokers!r:.150}, not a list of names, nor names with numbers of write queues"
        raise InvalidRequest("ARGUMENT_ILLEGAL", what)


def _ask(topic: str, known: Mapping[str, AdminApi]) -> _Found:
    found = _Found(known)
    for name, broker in found.brokers.items():
        try:
            # A slave answers for a master that is away, and takes no change.
            if broker.replication()["role"] == "slave":
                found.away[name] = "away: only a slave of it answers"
            found.configs[name] = broker.topic(topic)
        except Unavailable as error:
            found.away[name] = f"away: {error.detail}"
        except InvalidRequest as error:
            if error.code != "TOPIC_NOT_EXIST":
                raise
    return found


def _remembered(topic: str, routes: Routes | None) -> OrderConf | None:
    """What name servers say, also of brokers that are away."""
    if routes is None:
        return None
    routes.holders(topic)
    return routes.known_order_conf(topic)


def _wanted(
    found: _Found,
    before: OrderConf | None,
    brokers: Sequence[str] | Mapping[str, int] | None,
    queues: int | None,
    routes: Routes | None,
    *,
    is_shown: bool,
) -> dict[str, int]:
    had = {} if before is None else before.write_queue_nums
    given: dict[str, int | None]
    if brokers is None:
        if unknown := routes.unknown() if routes is not None else []:
            who = f"{', '.join(unknown)} never answered: which broker that is, is not known"
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{who}; name the brokers, or start it")
        given = dict.fromkeys(had or found.writable or found.configs or found.brokers)
    else:
        given = dict(brokers) if isinstance(brokers, Mapping) else dict.fromkeys(brokers)
    nobodys = sorted(given.keys() - found.brokers.keys() - had.keys())
    if nobodys:
        known = ", ".join(sorted(found.brokers))
        what = f"no broker is known by the name {', '.join(nobodys)}; those that are: {known}"
        raise InvalidRequest("ARGUMENT_ILLEGAL", what, brokers=sorted(found.brokers))
    states = {name: _state(name, found, None) for name in given}
    away = [f"broker {name} is {state}" for name, state in states.items() if state != _NOT_YET]
    if away and not is_shown:
        raise Unavailable("SERVICE_NOT_AVAILABLE", "; ".join(away) + "; nothing was changed", sent=False)
    others = max((config.write_queue_nums for config in found.configs.values()), default=DEFAULT_QUEUES)
    wanted = {}
    for name, nums in given.items():
        config = found.configs.get(name)
        there = others if config is None else config.write_queue_nums
        said = (number for number in (nums, queues, had.get(name), there) if number is not None)
        wanted[name] = next(said)
    return wanted


def _check_read_queues(wanted: Mapping[str, int], read_queue_nums: int | None) -> None:
    """Refuses what the brokers with the most write queues would refuse, before the others have taken it."""
    if read_queue_nums is None:
        return
    if lacking := [f"{name}:{nums}" for name, nums in wanted.items() if nums > read_queue_nums]:
        what = f"{read_queue_nums} read queues are fewer than the write queues of {', '.join(lacking)}"
        raise InvalidRequest(
            "TOPIC_CONFLICT", f"{what}: messages there would not be read; nothing was changed"
        )


def _carry_out(
    found: _Found, topic: str, before: OrderConf | None, conf: OrderConf, settings: Mapping[str, Any]
) -> None:
    """Gives the list to its brokers by name, then to the others that have the topic.

    Of several changes at the same time one is taken by the first broker of all; the others end there.
    """
    heard_of = 0 if before is None else before.version
    failures: list[LakeMQError] = []
    done: list[str] = []
    listed = list(conf.write_queue_nums)
    others = [name for name in found.configs if name not in listed and name not in found.away]
    for name in [*listed, *others]:
        given = settings if name in listed else {}
        try:
            found.configs[name] = found.brokers[name].put_topic(
                topic, order_conf=conf, order_conf_before=heard_of, **given
            )
            done.append(name)
        except LakeMQError as error:
            failures.append(error)
            if error.code == _CONFLICT:
                break
    if failures:
        what = "; ".join(error.detail for error in failures)
        what += f"; done on {', '.join(done)}: give the same list again" if done else ""
        if not done and failures[0].code == _CONFLICT:
            what += "; nothing was changed"
        raise type(failures[0])(failures[0].code, what, **failures[0].context) from failures[0]


def _row(name: str, found: _Found, had: Mapping[str, int], conf: OrderConf) -> OrderedBroker:
    return OrderedBroker(name, had.get(name), conf.write_queue_nums.get(name), _state(name, found, conf))


def _state(name: str, found: _Found, conf: OrderConf | None) -> str:
    if name in found.away:
        return found.away[name]
    if name not in found.brokers:
        return "away: no route has it"
    return _NOT_YET if conf is None or found.confs.get(name) != conf else IN_FORCE
