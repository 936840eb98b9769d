"""Requests to the brokers of one name: the master, and for reads its slaves.

Owns the order in which the addresses of one broker name are tried.

Invariants: what changes something goes to the master only, but for what slaves may take too; that, and a
read, goes to a slave when the master does not answer, but to none whose log is known to be another one; what
a slave does not know is not known, for its master may have it; a queue is read at the slave that its broker
suggests for it while that has messages of it; an error names the broker; all of a call, name
servers included, is within its time, but a long poll has that time at each address. A master that did not
answer is tried last for a while, so that not every read waits for it.

Threads: any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakemq.client.deadline import Deadline
from lakemq.client.errors import OutcomeUnknown
from lakemq.client.repeats import repeated
from lakemq.client.routes import Routes
from lakemq.client.transport import Answer, Transport
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable
from store_native.names import SUGGESTED_BROKER_HEADER

LOOK_AGAIN_S = 0.5
"""How often a broker that no route has is looked for."""
AWAY_S = 5.0
"""How long an address that did not answer is tried last."""
MOST_SUGGESTED = 10_000
"""Queues that are read at slaves; further ones are read at their masters."""
_FOUND = b'{"status":"FOUND"'
_NOT_THERE = frozenset({"TOPIC_NOT_EXIST", "QUEUE_NOT_EXIST", "GROUP_NOT_EXIST", "MESSAGE_NOT_EXIST"})


class BrokerTransport:
    """Sends requests to the brokers of one name; used as a :class:`Transport` is.

    Args:
        name: The broker name.
        routes: Where its brokers are.
        transport_to: Returns the transport to an address.
        clock: Monotonic seconds.
        pause: Waits; given in tests.
    """

    def __init__(
        self,
        name: str,
        routes: Routes,
        transport_to: Callable[[str], Transport],
        *,
        timeout_s: float,
        retry_until: float | None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pause = pause
        self.name = name
        self.timeout_s = timeout_s
        self.retry_until = retry_until
        self._routes = routes
        self._transport_to = transport_to
        self._clock = clock
        self._away_until: dict[str, float] = {}
        self._master: str | None = None  # as the routes had it when they were looked at
        self._suggested: dict[str, int] = {}  # by the path of a queue's messages, the id of a slave
        self.slave_answers = 0

    @property
    def endpoint(self) -> str:
        """The master's address as it was found last; the name while none was found. Asks nobody."""
        return self._master or self.name

    def look_up(self, deadline: Deadline) -> None:
        """Finds the master's address."""
        self._addresses(deadline, at_slaves=False)

    def call(self, method: str, path: str, **how: Any) -> Answer:
        """Sends one request; see :meth:`Transport.call`.

        Raises:
            Unavailable: Neither the master answers nor, for a read, a slave; the text names the broker.
            LakeMQError: As :meth:`Transport.call`.
        """
        deadline = self._deadline(how)
        if how.get("once") or (how.get("retry_until") or self.retry_until) is None:
            return self._call_once(method, path, how, deadline)
        self._wait_for_route(method, how, deadline)
        attempt_s = self.timeout_s + how.get("wait_s", 0.0)
        return repeated(
            # Each time where the broker is by then: a slave may have been promoted.
            lambda: self._call_once(
                method, path, {**how, "once": True}, Deadline(min(attempt_s, deadline.left()))
            ),
            f"{method} {path}",
            key=how.get("idempotency_key"),
            most=None,
            deadline=deadline,
            pause=self._pause,
            endpoint=self.endpoint,
        )

    def _call_once(self, method: str, path: str, how: dict[str, Any], deadline: Deadline) -> Answer:
        """Asks each address that may answer, and looks at the routes a second time."""
        failed: LakeMQError | None = None
        tried: set[str] = set()
        parted: list[str] = []
        # A second look at the routes: another broker may be the master by now.
        for _ in range(2):
            at_slaves = method == "GET" or how.get("at_slaves", False)
            master, addresses = self._addresses(deadline, at_slaves=at_slaves)
            suggested = self._suggested_for(path, deadline) if at_slaves else None
            if suggested in addresses:
                addresses.sort(key=lambda address: address != suggested)
            open_addresses = [address for address in addresses if address not in tried]
            for index, address in enumerate(open_addresses):
                tried.add(address)
                last = index == len(open_addresses) - 1
                so = {**how, "once": how.get("once", False) or not last}
                if not how.get("wait_s"):
                    so["within_s"] = deadline.left() if last else deadline.left() / 2
                try:
                    answer = self._transport_to(address).call(method, path, **so)
                except (Unavailable, Closed) as error:
                    if error.code == "CLIENT_CLOSED":
                        raise
                    failed = error
                    self._away_until[address] = self._clock() + AWAY_S
                    self._routes.failed()
                    continue
                except OutcomeUnknown as error:
                    self._routes.failed()
                    raise self._named(error) from error
                except InvalidRequest as refused:
                    if address == master or refused.code not in _NOT_THERE:
                        raise
                    failed = _behind(refused)
                    continue
                if answer.log_parted and address != master:
                    parted.append(address)
                    continue
                self._away_until.pop(address, None)
                if address == suggested and not last and not _has_found(answer):
                    self._suggested.pop(path, None)
                    continue
                self._take_suggestion(path, answer)
                behind = answer.from_slave or address != master
                self.slave_answers += behind
                return replace(answer, from_slave=behind, broker_name=self.name)
            if failed is not None and deadline.left() <= 0:
                break
        if parted:
            failed = _parted(parted, failed)
        if failed is None:
            raise self._unknown(deadline)
        raise self._named(failed) from failed

    def _suggested_for(self, path: str, deadline: Deadline) -> str | None:
        """The slave at which a queue is read; one that did not answer is left alone for a while."""
        if path not in self._suggested:
            return None
        route = self._routes.brokers(deadline).get(self.name)
        slaves = {} if route is None else dict(zip(route.slave_ids, route.slaves, strict=True))
        address = slaves.get(self._suggested[path])
        is_away = address is None or self._away_until.get(address, 0.0) > self._clock()
        return None if is_away else address

    def _take_suggestion(self, path: str, answer: Answer) -> None:
        said = answer.headers.get(SUGGESTED_BROKER_HEADER, "0")
        broker_id = int(said) if said.isascii() and said.isdigit() else 0
        if broker_id and (path in self._suggested or len(self._suggested) < MOST_SUGGESTED):
            self._suggested[path] = broker_id
        else:
            self._suggested.pop(path, None)

    def _wait_for_route(self, method: str, how: dict[str, Any], deadline: Deadline) -> None:
        """Waits for a broker that no route has; goes on with what is left for a last try."""
        at_slaves = method == "GET" or how.get("at_slaves", False)
        while deadline.left() > 2 * LOOK_AGAIN_S and not self._addresses(deadline, at_slaves=at_slaves)[1]:
            self._routes.failed()
            self._pause(LOOK_AGAIN_S)

    def close(self) -> None:
        """Has nothing of its own: the connections are the cluster's."""

    def _deadline(self, how: dict[str, Any]) -> Deadline:
        """Until when a call may last, as :meth:`Transport.call` has it."""
        until = how.get("retry_until") or self.retry_until or self.timeout_s
        seconds: float = until + how.get("wait_s", 0.0)
        within_s = how.get("within_s")
        return Deadline(seconds if within_s is None else min(seconds, within_s))

    def _addresses(self, deadline: Deadline, *, at_slaves: bool) -> tuple[str | None, list[str]]:
        """The master, and the addresses that may answer, the most likely first."""
        route = self._routes.brokers(deadline).get(self.name)
        if route is None:
            self._routes.failed()  # it may have come since
            return None, []
        self._master = route.master or self._master
        found = [] if route.master is None else [route.master]
        if at_slaves:
            now = self._clock()
            found += route.slaves
            found.sort(key=lambda address: self._away_until.get(address, 0.0) > now)
        return route.master, found

    def _unknown(self, deadline: Deadline) -> LakeMQError:
        names = list(self._routes.brokers(deadline))
        if self.name in names:
            what = f"broker {self.name} has no master that is known: it is away"
        else:
            what = f"no broker is known by the name {self.name!r}; those that are: {', '.join(names)}"
        return Unavailable("SERVICE_NOT_AVAILABLE", what, broker_name=self.name, brokers=names, sent=False)

    def _named(self, error: LakeMQError) -> LakeMQError:
        context = {**error.context, "broker_name": self.name}
        return type(error)(error.code, f"broker {self.name}: {error.detail}", **context)


def _has_found(answer: Answer) -> bool:
    """Whether a pull's answer has messages."""
    return answer.headers.get("X-LakeMQ-Status") == "FOUND" or answer.body.startswith(_FOUND)


def _parted(addresses: list[str], failed: LakeMQError | None) -> Unavailable:
    """What it comes to that none answers but slaves that say that their log is not their master's."""
    what = f"{', '.join(addresses)}: a slave whose log parted from its master's is not read in its place"
    context = {} if failed is None else failed.context
    detail = what if failed is None else f"{failed.detail}; {what}"
    return Unavailable("SERVICE_NOT_AVAILABLE", detail, **context)


def _behind(refused: InvalidRequest) -> Unavailable:
    """What a slave's refusal comes to that does not know what is asked for."""
    what = f"its master does not answer, and its slave does not know it: {refused.detail}"
    return Unavailable("SERVICE_NOT_AVAILABLE", what, **refused.context)
