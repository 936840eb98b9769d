"""Which brokers there are, where they answer, and who holds a topic.

Owns what a client knows of a cluster: it asks name servers, and brokers that it was given by address, every
30 s and again after a failure.

Invariants: what is known goes on to be used while nobody answers, and while a name server that has just
been started knows no broker yet; of several name servers the first that answers is believed: they do not talk
to each other; a broker given by address stands for itself alone, not for those that register with it.

Threads: any may ask; one of them refreshes, the others use what is known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemq.client.transport import NOT_OF_THE_SHAPE, path_of
from store_native.errors import LakeMQError, Unavailable
from store_native.names import PERM_READ, PERM_WRITE

log = logging.getLogger("lakemq.client")

REFRESH_S = 30.0
"""Routes are asked for again after it."""
FIRST_REFRESH_S = 1.0
"""After a failure they are asked for again, but not more often than this."""
MISSING_S = 120.0
"""A broker that is in no answer any more stays known so long, as a name server waits for a silent one."""
MASTER_ID = 0

Ask = Callable[[str, str], Any]
"""(endpoint, path) -> the JSON it answers; raises LakeMQError."""


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """Where the brokers of one name answer: the master, if it is known, and its slaves."""

    name: str
    master: str | None
    slaves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueNums:
    """How many queues of a topic a broker holds, and who may use them (4 read, 2 write)."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int

    @property
    def writable(self) -> int:
        """Queues that take messages."""
        return self.write_queue_nums if self.perm & PERM_WRITE else 0

    @property
    def readable(self) -> int:
        """Queues that are read."""
        return self.read_queue_nums if self.perm & PERM_READ else 0


@dataclass(slots=True)
class _Known:
    """An answer, and when it was asked for."""

    value: dict[str, Any]
    asked_at: float
    seen_at: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """Who answers at an address, and when it did last."""

    name: str
    broker_id: int
    epoch: int
    seen_at: float


class Routes:
    """What is known of a cluster.

    Args:
        endpoints: Name servers, brokers, or both.
        ask: Asks one of them.
        clock: Monotonic seconds.
    """

    def __init__(
        self, endpoints: Sequence[str], ask: Ask, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._ask = ask
        self._clock = clock
        self._refreshing = threading.Lock()
        self._is_name_server: dict[str, bool] = {}
        self._places: dict[str, _Place] = {}  # of brokers given by address
        self._brokers: _Known | None = None
        self._topics: dict[str, _Known] = {}
        self._failed_at: float | None = None
        self._said_down = False

    @property
    def unknown(self) -> list[str]:
        """Endpoints that never answered: whether each is a broker, and which, is not known."""
        return [endpoint for endpoint in self._endpoints if endpoint not in self._is_name_server]

    def brokers(self) -> Mapping[str, BrokerRoute]:
        """Returns the brokers by name.

        Raises:
            Unavailable: Nobody answers, and nothing is known from before.
        """
        known = self._brokers
        if known is not None and not self._is_due(known):
            return known.value
        if known is not None and not self._refreshing.acquire(blocking=False):
            return known.value  # another thread is asking
        if known is None:
            self._refreshing.acquire()
        try:
            if self._brokers is None or self._is_due(self._brokers):
                self._brokers = self._ask_for_brokers()
            return self._brokers.value
        finally:
            self._refreshing.release()

    def holders(self, topic: str) -> Mapping[str, QueueNums]:
        """Returns what each broker holds of a topic, by broker name; nothing where nobody has it.

        Raises:
            Unavailable: Nobody answers, and nothing is known from before.
        """
        self.brokers()  # tells name servers from brokers
        known = self._topics.get(topic)
        # A topic that nobody has may be made at any time.
        if known is not None and not self._is_due(known, REFRESH_S if known.value else FIRST_REFRESH_S):
            return known.value
        asked_at = self._clock()
        try:
            found = self._ask_for_topic(topic)
        except LakeMQError:
            if known is None:
                raise
            found = known.value
        self._topics[topic] = _Known(found, asked_at)
        return found

    def failed(self) -> None:
        """Notes that a broker did not answer: the routes are asked for again."""
        self._failed_at = self._clock()

    def _is_due(self, known: _Known, refresh_s: float = REFRESH_S) -> bool:
        age = self._clock() - known.asked_at
        failed = self._failed_at is not None and self._failed_at >= known.asked_at
        return age >= (FIRST_REFRESH_S if failed else refresh_s)

    def _ask_for_brokers(self) -> _Known:
        asked_at = self._clock()
        found: dict[str, dict[int, str]] = {}
        failures: list[LakeMQError] = []
        name_server_answered = False
        for endpoint in self._endpoints:
            if self._is_name_server.get(endpoint) and name_server_answered:
                continue
            try:
                if self._ask_one(endpoint, found, asked_at):
                    name_server_answered = True
            except NOT_OF_THE_SHAPE:
                failures.append(Unavailable("SERVICE_NOT_AVAILABLE", f"{endpoint} is no LakeMQ broker"))
            except LakeMQError as error:
                failures.append(error)
        # Of two masters the one that answers counts, and of those the one of the higher epoch.
        places = sorted(self._places.items(), key=lambda at: (-at[1].seen_at, -at[1].epoch))
        for endpoint, place in places:
            found.setdefault(place.name, {}).setdefault(place.broker_id, endpoint)
        routes = {name: _route(name, addresses) for name, addresses in sorted(found.items())}
        before = self._brokers
        if not routes and before is None:
            raise _nobody(self._endpoints, failures)
        self._say_down(failures)
        seen_at = dict.fromkeys(routes, asked_at)
        for name, route in before.value.items() if before is not None else ():
            # A name server that was started a moment ago does not know every broker yet.
            last = before.seen_at[name] if before is not None else asked_at
            if name not in routes and (not found or asked_at - last < MISSING_S):
                routes[name], seen_at[name] = route, last
        return _Known(routes, asked_at, seen_at)

    def _ask_one(self, endpoint: str, found: dict[str, dict[int, str]], now: float) -> bool:
        """Asks one endpoint who it is and whom it knows; returns whether it is a name server."""
        said = self._ask(endpoint, path_of("cluster"))
        if "broker_name" not in said:
            self._is_name_server[endpoint] = True
            for broker in said["brokers"]:
                addresses = found.setdefault(str(broker["broker_name"]), {})
                addresses.update({int(key): str(url) for key, url in broker["addresses"].items()})
            return True
        role = self._ask(endpoint, path_of("replication"))["role"]
        # One that was promoted has kept the id it was started with.
        broker_id = max(1, int(said["broker_id"])) if role == "slave" else MASTER_ID
        self._is_name_server[endpoint] = False
        self._places[endpoint] = _Place(str(said["broker_name"]), broker_id, int(said["epoch"]), now)
        return False

    def _ask_for_topic(self, topic: str) -> dict[str, QueueNums]:
        found: dict[str, QueueNums] = {}
        failures: list[LakeMQError] = []
        answered = False
        for endpoint, is_name_server in list(self._is_name_server.items()):
            if is_name_server and answered:
                continue
            path = path_of("routes" if is_name_server else "topics", topic)
            try:
                said = self._ask(endpoint, path)
            except LakeMQError as error:
                if error.code == "TOPIC_NOT_EXIST":
                    answered = answered or is_name_server
                else:
                    failures.append(error)
                continue
            if is_name_server:
                answered = True
                found.update({str(q["broker_name"]): _queue_nums(q) for q in said["queues"]})
            else:
                found[self._places[endpoint].name] = _queue_nums(said)
        known = self._topics.get(topic)
        if failures and known is not None:
            # Who does not answer has not lost its queues.
            found = {**known.value, **found} if not answered else found
        if not found and failures and not answered:
            raise failures[0]
        return found

    def _say_down(self, failures: list[LakeMQError]) -> None:
        """Says once that endpoints do not answer, and once that all do again."""
        if failures and not self._said_down:
            log.warning("routes are taken from whom answers: %s", "; ".join(e.detail for e in failures))
        self._said_down = bool(failures)


def _route(name: str, addresses: Mapping[int, str]) -> BrokerRoute:
    slaves = tuple(url for broker_id, url in sorted(addresses.items()) if broker_id != MASTER_ID)
    return BrokerRoute(name, addresses.get(MASTER_ID), slaves)


def _queue_nums(said: Mapping[str, Any]) -> QueueNums:
    return QueueNums(int(said["read_queue_nums"]), int(said["write_queue_nums"]), int(said["perm"]))


def _nobody(endpoints: Sequence[str], failures: Sequence[LakeMQError]) -> LakeMQError:
    why = "; ".join(error.detail for error in failures) or "no broker is registered with it yet"
    return Unavailable("SERVICE_NOT_AVAILABLE", f"no broker is known through {', '.join(endpoints)}: {why}")
