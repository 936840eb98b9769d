"""Which brokers there are, where they answer, and who holds a topic.

Owns what a client knows of a cluster: it asks name servers, and brokers that it was given by address, every
30 s and again after a failure.

Invariants: what is known goes on to be used while nobody answers, and while a name server that has just
been started knows no broker yet, of as many topics as are remembered; the newest list of an ordered topic's
brokers is never forgotten for an older one, nor while a broker that it names is away; of several name servers
the first that answers is believed: they do not talk to each other; a broker given by address stands for
itself alone, not for those that register with it; nobody is waited for longer than the call allows that asks.

Threads: any may ask; one of them refreshes, the others use what is known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lakemq.client.broker_table import MASTER_ID, BrokerRoute, BrokerTable, Place, Registered
from lakemq.client.deadline import Deadline, held
from lakemq.client.recent import Recent
from lakemq.client.topic_route import QueueNums, TopicRoute, check_alike, queue_nums
from lakemq.client.transport import NOT_OF_THE_SHAPE, path_of
from store_native.errors import LakeMQError, Unavailable
from store_native.order_conf import OrderConf, newest

log = logging.getLogger("lakemq.client")

REFRESH_S = 30.0
"""Routes are asked for again after it."""
FIRST_REFRESH_S = 1.0
"""After a failure they are asked for again, but not more often than this."""
ASK_TIMEOUT_S = 3.0
"""How long one endpoint may take to answer, where the call has more time."""

SILENT_TIMEOUT_S = 0.5
"""How long one may take that did not answer the last time, where a name server has answered."""

MOST_TOPICS = 4_096
"""Of so many topics a client remembers who holds them, or why nobody said so: those that were used last."""

Answer = TypeVar("Answer")

Ask = Callable[[str, str, float], Any]
"""(endpoint, path, seconds) -> the JSON it answers; raises LakeMQError."""


class Routes:
    """What is known of a cluster.

    Args:
        endpoints: Name servers, brokers, or both.
        ask: Asks one of them, or a master of theirs.
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
        self._silent: set[str] = set()
        self._table = BrokerTable()
        self._asked_at: float | None = None
        self._names_are_told = False
        self._topics: Recent[str, TopicRoute] = Recent(MOST_TOPICS)
        self._failed_at: float | None = None
        self._refused: Recent[str | None, tuple[float, LakeMQError]] = Recent(MOST_TOPICS)
        self._said_down = False

    def unknown(self, deadline: Deadline | None = None) -> list[str]:
        """Returns the endpoints that never answered: whether each is a broker, and which, is not known.

        There are none once a name server has named the brokers. Asks, if nobody was asked yet; those that
        it returns are asked again by the next call, once a second at most.

        Args:
            deadline: As for :meth:`brokers`.

        Raises:
            Unavailable: Nobody answers, and nothing is known from before.
        """
        self.brokers(deadline)
        if self._names_are_told:
            return []
        unknown = [endpoint for endpoint in self._endpoints if endpoint not in self._is_name_server]
        if unknown:
            self.failed()
        return unknown

    def brokers(self, deadline: Deadline | None = None) -> Mapping[str, BrokerRoute]:
        """Returns the brokers by name.

        Args:
            deadline: Until when somebody may be waited for; None is ASK_TIMEOUT_S for each endpoint.

        Raises:
            Unavailable: Nobody answers, and nothing is known from before.
            InvalidRequest: BROKER_CONFLICT, two brokers are the master of one name.
        """
        if self._is_due(self._asked_at):
            must = self._asked_at is None
            with held(self._refreshing, deadline, wait=must) as alone:
                if alone and self._is_due(self._asked_at):
                    self._refuse_again(None)
                    self._asking(None, deadline, lambda: self._ask_for_brokers(deadline))
            if self._asked_at is None:
                raise _nobody(self._endpoints, [_still_asked()])
        return self._table.routes

    def holders(self, topic: str, deadline: Deadline | None = None) -> Mapping[str, QueueNums]:
        """Returns what each broker holds of a topic, by broker name; nothing where nobody has it.

        A broker that a name server does not know at the moment has not lost its queues.

        Raises:
            Unavailable: Nobody answers, and nothing is known from before.
            InvalidRequest: As :meth:`brokers`.
        """
        return self._topic(topic, deadline).holders

    def order_conf(self, topic: str, deadline: Deadline | None = None) -> OrderConf | None:
        """Returns the brokers of an ordered topic, those that are away included; None: it is not ordered.

        Raises:
            Unavailable: As :meth:`holders`.
            InvalidRequest: TOPIC_CONFLICT, two brokers have different lists of one version; else as
                :meth:`brokers`.
        """
        known = self._topic(topic, deadline)
        if known.order_conf is not None:
            check_alike(topic, known.order_conf, known.holders)
        return known.order_conf

    def known(self, topic: str) -> TopicRoute | None:
        """Returns what was heard last, and asks nobody."""
        return self._topics.get(topic)

    def known_order_conf(self, topic: str) -> OrderConf | None:
        """Returns the list that was heard last, and asks nobody."""
        known = self._topics.get(topic)
        return None if known is None else known.order_conf

    def note_order_conf(self, topic: str, conf: OrderConf, holders: Mapping[str, QueueNums]) -> None:
        """Takes a list that this client gave the topic; who holds it now is asked for by the next call.

        Args:
            topic: The topic.
            conf: The list.
            holders: Who has it. A name server does not know of a new topic at once, so they are asked.
        """
        known = self._topics.get(topic)
        before = {} if known is None else known.holders
        self._topics.put(topic, TopicRoute({**before, **holders}, float("-inf"), conf))

    def learned(self, topic: str, conf: OrderConf) -> bool:
        """Takes a list that a broker has told, by which a message is another's; returns whether it is newer.

        Who holds the topic is not asked for again: name servers may hear of the list later.
        """
        known = self._topics.get(topic)
        if known is None or (known.order_conf is not None and known.order_conf.version >= conf.version):
            return False
        self._topics.put(topic, replace(known, order_conf=conf))
        return True

    def _topic(self, topic: str, deadline: Deadline | None) -> TopicRoute:
        self.brokers(deadline)  # tells name servers from brokers
        known = self._topics.get(topic)
        if known is None or self._is_topic_due(known):
            with held(self._refreshing, deadline, wait=known is None) as alone:
                known = self._topics.get(topic)
                if alone and (known is None or self._is_topic_due(known)):
                    self._refuse_again(topic)
                    before = known
                    known = self._asking(
                        topic, deadline, lambda: self._ask_who_holds(topic, before, deadline)
                    )
                    self._topics.put(topic, known)
            if known is None:
                raise _still_asked()
        return known

    def failed(self) -> None:
        """Notes that a broker did not answer: the routes are asked for again."""
        self._failed_at = self._clock()

    def _refuse_again(self, what: str | None) -> None:
        """Refuses with what was heard a moment ago: who does not answer is not asked more often.

        Args:
            what: A topic; None for the brokers.
        """
        refused = self._refused.get(what)
        if refused is not None and self._clock() - refused[0] < FIRST_REFRESH_S:
            error = refused[1]
            raise type(error)(error.code, error.detail, **error.context)

    def _asking(self, what: str | None, deadline: Deadline | None, ask: Callable[[], Answer]) -> Answer:
        """Asks, and remembers a refusal for :meth:`_refuse_again`, unless the call had hardly time to ask."""
        now = self._clock()
        try:
            answer = ask()
        except LakeMQError as error:
            if error.code != "CLIENT_CLOSED" and (deadline is None or deadline.left() > FIRST_REFRESH_S):
                error.context.setdefault("retry_after_ms", round(FIRST_REFRESH_S * 1000))
                self._refused.put(what, (now, error))
            raise
        self._refused.forget(what)
        return answer

    def _is_due(self, asked_at: float | None, refresh_s: float = REFRESH_S) -> bool:
        if asked_at is None:
            return True
        failed = self._failed_at is not None and self._failed_at >= asked_at
        return self._clock() - asked_at >= (FIRST_REFRESH_S if failed else refresh_s)

    def _is_topic_due(self, known: TopicRoute) -> bool:
        # A topic that nobody has may be made at any time.
        return self._is_due(known.asked_at, REFRESH_S if known.holders else FIRST_REFRESH_S)

    def _in_order(self) -> list[str]:
        """The endpoints; those that did not answer the last time come last."""
        return sorted(self._endpoints, key=self._silent.__contains__)

    def _ask_for_brokers(self, deadline: Deadline | None) -> None:
        now = self._clock()
        registered: dict[str, Registered] = {}
        failures: list[LakeMQError] = []
        answered = False
        endpoints = self._in_order()
        for at, endpoint in enumerate(endpoints):
            if self._is_name_server.get(endpoint) and answered:
                continue
            try:
                most = SILENT_TIMEOUT_S if answered and endpoint in self._silent else ASK_TIMEOUT_S
                limit = _share(deadline, len(endpoints) - at, most)
                answered = self._ask_who_it_is(endpoint, registered, now, limit) or answered
                self._silent.discard(endpoint)
            except LakeMQError as error:
                failures.append(error)
                self._silent.add(endpoint)
        if answered and registered:
            self._names_are_told = True
        if not self._table.update(registered, now):
            raise _nobody(self._endpoints, failures)
        self._asked_at = now
        self._say_down(failures)

    def _ask_who_it_is(
        self, endpoint: str, registered: dict[str, Registered], now: float, limit: Deadline
    ) -> bool:
        """Asks one endpoint who it is and whom it knows; returns whether it is a name server."""
        try:
            said = self._ask(endpoint, path_of("cluster"), limit.left())
            if "broker_name" not in said:
                found = {str(broker["broker_name"]): _registered(broker) for broker in said["brokers"]}
                self._is_name_server[endpoint] = True
                registered.update(found)
                return True
            # Role and epoch of one answer: between two it may have been promoted.
            status = self._ask(endpoint, path_of("replication"), limit.left())
            # One that was promoted has kept the id it was started with.
            broker_id = max(1, int(said["broker_id"])) if status["role"] == "slave" else MASTER_ID
            name, store_id = str(said["broker_name"]), str(said.get("store_id", ""))
            self._table.put_place(endpoint, Place(name, broker_id, int(status["epoch"]), store_id, now))
            self._is_name_server[endpoint] = False
        except NOT_OF_THE_SHAPE:
            raise _not_lakemq(endpoint) from None
        return False

    def _ask_who_holds(self, topic: str, known: TopicRoute | None, deadline: Deadline | None) -> TopicRoute:
        now = self._clock()
        try:
            found, told = self._ask_for_topic(topic, deadline)
        except LakeMQError:
            if known is None:
                raise
            return TopicRoute(known.holders, now, known.order_conf)
        gone = [] if known is None else [name for name in known.holders if name not in found]
        if gone or not found.keys() <= self._table.routes.keys():
            self._ask_for_brokers(deadline)
        for name in gone:
            assert known is not None, "what is gone was known"
            still = self._still_held(topic, name, known.holders[name], deadline)
            found |= {} if still is None else {name: still}
        conf = newest((told, *(nums.order_conf for nums in found.values())))
        before = None if known is None else known.order_conf
        # Deleted it is only where all that should have it are asked, and none does.
        if before is not None and (conf is not None or not self._are_here(before)):
            conf = newest((conf, before))
        return TopicRoute(found, now, conf)

    def _are_here(self, conf: OrderConf) -> bool:
        here = self._table.routes.keys() - self._table.absent
        return conf.write_queue_nums.keys() <= here

    def _still_held(
        self, topic: str, name: str, before: QueueNums, deadline: Deadline | None
    ) -> QueueNums | None:
        """What a broker holds that is in no answer about a topic any more; it says so itself where it can."""
        route = self._table.routes.get(name)
        if route is None:
            return None
        if name in self._table.absent or route.master is None:
            return before
        try:
            said = self._ask(route.master, path_of("topics", topic), _share(deadline, 1).left())
            return queue_nums(said)
        except NOT_OF_THE_SHAPE:
            return before
        except LakeMQError as error:
            return None if error.code == "TOPIC_NOT_EXIST" else before

    def _ask_for_topic(
        self, topic: str, deadline: Deadline | None
    ) -> tuple[dict[str, QueueNums], OrderConf | None]:
        """Who holds it, and the list that a name server has of it."""
        found: dict[str, QueueNums] = {}
        told: OrderConf | None = None
        failures: list[LakeMQError] = []
        answered = False
        endpoints = [endpoint for endpoint in self._in_order() if endpoint in self._is_name_server]
        for at, endpoint in enumerate(endpoints):
            is_name_server = self._is_name_server[endpoint]
            if is_name_server and answered:
                continue
            try:
                limit = _share(deadline, len(endpoints) - at)
                held, conf = self._ask_what_it_holds(endpoint, topic, is_name_server, limit)
                found.update(held)
                told = told or conf
            except LakeMQError as error:
                if error.code != "TOPIC_NOT_EXIST":
                    if is_name_server or not self._table.is_missing(endpoint, self._clock()):
                        failures.append(error)
                    continue
            answered = answered or is_name_server
        if not found and failures and not answered:
            raise failures[0]
        return found, told

    def _ask_what_it_holds(
        self, endpoint: str, topic: str, is_name_server: bool, limit: Deadline
    ) -> tuple[dict[str, QueueNums], OrderConf | None]:
        path = path_of("routes" if is_name_server else "topics", topic)
        try:
            said = self._ask(endpoint, path, limit.left())
            if not is_name_server:
                return {self._table.name_at(endpoint): queue_nums(said)}, None
            held = {str(queues["broker_name"]): queue_nums(queues) for queues in said["queues"]}
            return held, OrderConf.of_json(said.get("order_conf"))
        except NOT_OF_THE_SHAPE:
            raise _not_lakemq(endpoint) from None

    def _say_down(self, failures: list[LakeMQError]) -> None:
        """Says once that endpoints do not answer, and once that all do again."""
        if failures and not self._said_down:
            log.warning("routes are taken from whom answers: %s", "; ".join(e.detail for e in failures))
        self._said_down = bool(failures)


def _share(deadline: Deadline | None, left_to_ask: int, most: float = ASK_TIMEOUT_S) -> Deadline:
    """The time one endpoint gets: those behind it, and the call itself, need time too."""
    return Deadline(most if deadline is None else min(most, deadline.left() / (left_to_ask + 1)))


def _registered(broker: Mapping[str, Any]) -> Registered:
    epoch = broker.get("epoch")
    addresses = {int(key): str(url) for key, url in broker["addresses"].items()}
    return Registered(addresses, None if epoch is None else int(epoch))


def _still_asked() -> LakeMQError:
    return Unavailable("SERVICE_NOT_AVAILABLE", "another call has not heard of them yet")


def _not_lakemq(endpoint: str) -> LakeMQError:
    return Unavailable("SERVICE_NOT_AVAILABLE", f"{endpoint} is no LakeMQ broker")


def _nobody(endpoints: Sequence[str], failures: Sequence[LakeMQError]) -> LakeMQError:
    why = "; ".join(error.detail for error in failures) or "no broker is registered with it yet"
    return Unavailable("SERVICE_NOT_AVAILABLE", f"no broker is known through {', '.join(endpoints)}: {why}")
