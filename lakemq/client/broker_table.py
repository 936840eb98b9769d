"""Who answers under each broker name, by what name servers and brokers have said.

Owns the choice of the master, and how long a broker is remembered that nobody names any more.

Invariants: no master is chosen whose epoch is lower than one that was seen; two masters of one name and one
epoch are an error that names both; a master that a name server does not know at the moment keeps its place.

Threads: one at a time; see routes.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.client")

MISSING_S = 120.0
"""A broker that is in no answer any more stays known so long, as a name server waits for a silent one."""
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """Where the brokers of one name answer: the master, if it is known, and its slaves, with their ids."""

    name: str
    master: str | None
    slaves: tuple[str, ...] = ()
    slave_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """What a name server says of a broker name: addresses by broker id, and the master's epoch."""

    addresses: Mapping[int, str]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What the broker at an address said of itself, and when it did last."""

    name: str
    broker_id: int
    epoch: int
    store_id: str
    seen_at: float


@dataclass(frozen=True, slots=True)
class _Master:
    address: str
    epoch: int
    seen_at: float


class BrokerTable:
    """The brokers by name.

    Attributes:
        routes: Where each answers.
        absent: Those whose master was in none of the newest answers; they are remembered.
    """

    def __init__(self) -> None:
        self.routes: dict[str, BrokerRoute] = {}
        self.absent: frozenset[str] = frozenset()
        self._places: dict[str, Place] = {}  # of brokers given by address
        self._masters: dict[str, _Master] = {}
        self._seen_at: dict[str, float] = {}
        self._said_stale: set[tuple[str, str]] = set()

    def put_place(self, address: str, place: Place) -> None:
        """Takes what the broker at an address says of itself."""
        self._places[address] = place

    def name_at(self, address: str) -> str:
        """Returns the name of the broker at an address that has answered."""
        return self._places[address].name

    def is_missing(self, address: str, now: float) -> bool:
        """Says whether the broker given by this address has not answered for MISSING_S."""
        return now - self._places[address].seen_at >= MISSING_S

    def update(self, registered: Mapping[str, Registered], now: float) -> dict[str, BrokerRoute]:
        """Takes the newest answers, and returns the routes.

        Args:
            registered: What a name server says, by broker name; nothing where none answered.
            now: When they were asked; a place that answered then has it as ``seen_at``.

        Raises:
            InvalidRequest: BROKER_CONFLICT, two brokers are the master of one name.
        """
        _check_masters([(address, place) for address, place in self._places.items() if place.seen_at == now])
        named = {*registered, *(place.name for place in self._places.values())}
        absent: set[str] = set()
        routes: dict[str, BrokerRoute] = {}
        for name in sorted(named):
            routes[name] = self._route(name, registered.get(name, Registered({})), now)
            self._seen_at[name] = now
            last = self._masters.get(name)
            if last is None or last.address != routes[name].master or last.seen_at < now:
                absent.add(name)
        for name, route in self.routes.items():
            # A name server that was started a moment ago does not know every broker yet.
            if name not in routes and (not named or now - self._seen_at[name] < MISSING_S):
                routes[name] = route
                absent.add(name)
        self.routes, self.absent = routes, frozenset(absent)
        return routes

    def _route(self, name: str, registered: Registered, now: float) -> BrokerRoute:
        last = self._masters.get(name)
        masters: list[_Master] = []
        slaves: dict[str, int] = {}
        for broker_id, address in sorted(registered.addresses.items()):
            if broker_id == MASTER_ID:
                known = 0 if last is None else last.epoch
                masters.append(_Master(address, known if registered.epoch is None else registered.epoch, now))
            else:
                slaves[address] = broker_id
        for address, place in self._places.items():
            if place.name == name and place.broker_id == MASTER_ID:
                masters.append(_Master(address, place.epoch, place.seen_at))
            elif place.name == name:
                slaves.setdefault(address, place.broker_id)
        best = max(masters, key=lambda master: (master.epoch, master.seen_at), default=None)
        if last is not None and (best is None or best.epoch < last.epoch):
            if best is not None:
                self._say_stale(name, best, last)
            is_late = best is None and now - last.seen_at >= MISSING_S
            best = None if last.address in slaves or is_late else last
        if best is not None:
            self._masters[name] = best
            slaves.pop(best.address, None)
        in_order = sorted(slaves, key=lambda address: (slaves[address], address))
        ids = tuple(slaves[address] for address in in_order)
        return BrokerRoute(name, None if best is None else best.address, tuple(in_order), ids)

    def _say_stale(self, name: str, stale: _Master, last: _Master) -> None:
        """Says once for each that a master has been replaced."""
        if (name, stale.address) not in self._said_stale:
            self._said_stale.add((name, stale.address))
            log.warning(
                "broker %s: nothing is sent to %s, a master of epoch %d: %s is the one of epoch %d",
                *(name, stale.address, stale.epoch, last.address, last.epoch),
            )


def _check_masters(answered: Sequence[tuple[str, Place]]) -> None:
    """Refuses two masters of one name and epoch, both there; an old one's epoch is lower than a new one's."""
    masters: dict[tuple[str, int], tuple[str, Place]] = {}
    for address, place in answered:
        if place.broker_id != MASTER_ID:
            continue
        other, first = masters.setdefault((place.name, place.epoch), (address, place))
        # One broker may be given by two of its addresses.
        if first.store_id != place.store_id:
            raise InvalidRequest(
                "BROKER_CONFLICT",
                f"{other} and {address} are both the master of broker {place.name}, each with a store of its "
                "own: give one of them another name (--broker-name)",
                brokers=[place.name],
            )
