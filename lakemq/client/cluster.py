"""The brokers of a cluster, as a client uses them: one client for each broker name, and sends to any of them.

Owns the connections to each address, and the rule of where a send goes when its broker fails.

Invariants: a send that got no answer is repeated elsewhere only with an Idempotency-Key, under the same;
since brokers do not know each other's keys it may be stored twice then, and its result says so; what got no
answer and is sent again under its key goes to the broker first that may have stored it; a message
with a sharding key is never sent to another broker than its key's; of an ordered topic that is the one which
the topic's list gives, whoever is known at the moment; a newer list that a broker refuses by is gone by.

Threads: any.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from lakemq.client.broker_choice import BrokerChoice, in_order_of_key
from lakemq.client.broker_transport import LOOK_AGAIN_S, BrokerTransport
from lakemq.client.deadline import Deadline
from lakemq.client.errors import OutcomeUnknown
from lakemq.client.open_sends import OpenSends
from lakemq.client.repeats import repeated
from lakemq.client.results import BatchResult, SendResult
from lakemq.client.routes import ASK_TIMEOUT_S, Routes
from lakemq.client.transport import NOT_OF_THE_SHAPE, Transport
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable
from store_native.order_conf import OrderConf
from store_native.sharding import in_order, of_sharding_key

C = TypeVar("C")
"""The client of one broker."""
Sent = TypeVar("Sent", SendResult, BatchResult)

RETRIES_ELSEWHERE = 2
"""How often a send is tried at another broker."""


class Cluster(Generic[C]):
    """The brokers behind name servers, or behind a list of brokers.

    Args:
        endpoints: Name servers, brokers, or both.
        settings: Of each broker's connections: ``timeout_s``, ``retries``, ``pool_size``, ``retry_until``,
            ``ca_file``, ``compression``.
        client_over: Makes the client of one broker.
        avoid_slow: See :class:`BrokerChoice`.
        pause: Waits; given in tests.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        settings: Mapping[str, Any],
        client_over: Callable[[BrokerTransport], C],
        *,
        avoid_slow: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pause = pause
        self._settings = dict(settings)
        self._client_over = client_over
        self._lock = threading.Lock()
        self._transports: dict[str, Transport] = {}
        self._clients: dict[str, C] = {}
        self._closed = False
        asking = {**self._settings, "timeout_s": ASK_TIMEOUT_S, "retries": 0, "retry_until": None}
        self._asking = {endpoint: Transport(endpoint, **asking) for endpoint in endpoints}
        self.routes = Routes([t.endpoint for t in self._asking.values()], self._ask)
        self._by_address = {transport.endpoint: transport for transport in self._asking.values()}
        self.choice = BrokerChoice(avoid_slow=avoid_slow)
        self._open = OpenSends()

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that does not say so itself."""
        seconds: float = self._settings["retry_until"] or self._settings["timeout_s"]
        return seconds

    def brokers(self, topic: str | None = None, deadline: Deadline | None = None) -> dict[str, C]:
        """Returns a client for each broker name, or for each that holds a topic, by name.

        Args:
            topic: The topic.
            deadline: Until when name servers may be waited for; None is as long as a call may take.
        """
        until = deadline or Deadline(self.call_timeout_s)
        names = self.routes.brokers(until) if topic is None else self.routes.holders(topic, until)
        return {name: self.broker(name) for name in sorted(names)}

    def broker(self, name: str) -> C:
        """Returns the client of one broker name; while nobody knows it, its calls say so."""
        with self._lock:
            if name not in self._clients:
                transport = BrokerTransport(
                    name,
                    self.routes,
                    self._transport_to,
                    timeout_s=self._settings["timeout_s"],
                    retry_until=self._settings["retry_until"],
                )
                self._clients[name] = self._client_over(transport)
            return self._clients[name]

    def send(
        self,
        topic: str,
        on: Callable[[C, float, int | None], Sent],
        *,
        sharding_keys: Sequence[str],
        idempotency_key: str | None,
        in_turn: bool,
        deadline: Deadline,
        until_deadline: bool = False,
    ) -> Sent:
        """Sends to a broker that takes messages of the topic, and elsewhere where that fails.

        Where nobody says which brokers do, they are asked again, as often as a request is repeated.

        Args:
            topic: The topic.
            on: Sends on one broker's client, within so many seconds, by the list of that version.
            sharding_keys: Of the messages.
            idempotency_key: Of the request; it is sent again to the same broker, whoever sends it again.
            in_turn: Whatever its key is, the request goes to whose turn it is.
            deadline: Until when.
            until_deadline: A send that may be repeated is, until then.

        Raises:
            OutcomeUnknown: An attempt got no answer, and none went well.
            LakeMQError: What the last broker said.
        """

        def looked_up() -> tuple[dict[str, int], tuple[str | None, OrderConf | None]]:
            queues = self.writable(topic, deadline)
            return queues, self._sharded_to(sharding_keys, topic, deadline, wait=until_deadline)

        queues, (sharded_to, conf) = repeated(
            looked_up,
            f"the question who takes messages of topic {topic}",
            key=idempotency_key,
            most=None if until_deadline else self._settings["retries"],
            deadline=deadline,
            pause=self._pause,
            endpoint=",".join(self._asking),
        )
        before = self._open.get(topic, idempotency_key)
        keyed = before.broker_names_of(queues)
        if not (in_turn or idempotency_key is None):
            keyed += in_order_of_key(idempotency_key, queues)
        # Who may have it answers what it has; what it has not it takes, or refuses by the list of now.
        if (
            sharded_to is not None
            and before.broker_names
            and before.broker_names[0] in self.routes.holders(topic, deadline)
        ):
            sharded_to, conf = before.broker_names[0], before.order_conf
        tried: set[str] = set()
        unanswered: OutcomeUnknown | None = None
        while True:
            of_key = next((name for name in keyed if name not in tried), None)
            name = sharded_to or of_key or self.choice.choose(queues, tried)
            tried.add(name)
            last = sharded_to is not None or len(tried) > RETRIES_ELSEWHERE or tried >= queues.keys()
            began = deadline.left()
            try:
                # The next broker needs time too.
                version = None if conf is None else conf.version
                result = on(self.broker(name), began if last else began / 2, version)
            except LakeMQError as error:
                if isinstance(error, InvalidRequest):
                    self._open.refused(topic, idempotency_key, name)
                if self.learned(topic, error, conf):
                    sharded_to, conf = self._sharded_to(sharding_keys, topic, deadline, wait=until_deadline)
                    continue
                if not isinstance(error, Unavailable | Closed | OutcomeUnknown):
                    if unanswered is None:
                        raise
                    # What this broker refused may be stored where no answer came from.
                    raise _final(error, unanswered, idempotency_key) from error
                if error.code == "CLIENT_CLOSED":
                    raise
                self.choice.failed(name)
                if not isinstance(error, Unavailable):
                    unanswered = (
                        error if isinstance(error, OutcomeUnknown) else _unknown(error, idempotency_key)
                    )
                    self._open.unanswered(topic, idempotency_key, name, conf)
                    last = last or idempotency_key is None
                if last or deadline.left() <= 0:
                    told = error if conf is None else _stays(error, name, topic)
                    raise _final(told, unanswered, idempotency_key) from error
                continue
            self.choice.went_well(name, began - deadline.left())
            may_have = self._open.get(topic, idempotency_key).broker_names
            self._open.ended(topic, idempotency_key)
            return _repeated_elsewhere(result) if set(may_have) - {name} else result

    def _sharded_to(
        self, sharding_keys: Sequence[str], topic: str, deadline: Deadline, *, wait: bool
    ) -> tuple[str | None, OrderConf | None]:
        """The broker of a request's sharding keys, and the list that says so where the topic is ordered.

        Args:
            wait: A broker of the list that no route has is waited for.
        """
        name = self.broker_of(sharding_keys, topic, deadline)
        conf = None if name is None else self.routes.known_order_conf(topic)
        if name is not None and conf is not None and wait:
            self._wait_for_route(name, deadline)
        return name, conf

    def learned(self, topic: str, error: LakeMQError, went_by: OrderConf | None) -> bool:
        """Says whether a broker refused because there is a newer list, which is known from then on.

        Args:
            topic: The topic.
            error: What the broker said.
            went_by: The list that the request went by. Another one's refusal may have told of a newer one.
        """
        if error.code != "WRONG_BROKER":
            return False
        try:
            conf = OrderConf.of_json(error.context.get("order_conf"))
        except NOT_OF_THE_SHAPE:
            return False
        if conf is not None:
            self.routes.learned(topic, conf)
        known = self.routes.known_order_conf(topic)
        return known is not None and (went_by is None or known.version > went_by.version)

    def broker_of(
        self, sharding_keys: Sequence[str], topic: str, deadline: Deadline | None = None
    ) -> str | None:
        """Returns the broker of a request's sharding keys, None when it has none.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, they are of several brokers, ``brokers`` in its context;
                TOPIC_CONFLICT, the topic is ordered over two lists.
        """
        if not sharding_keys:
            return None
        conf = self.routes.order_conf(topic, deadline or Deadline(self.call_timeout_s))
        queues = self.writable(topic, deadline) if conf is None else conf.write_queue_nums
        return _one_broker(sharding_keys, queues)

    def known_broker_of(self, sharding_key: str, topic: str) -> str | None:
        """Returns the broker of a sharding key by what was heard last; None: nobody has said. Asks nobody."""
        known = self.routes.known(topic)
        return None if known is None else _one_broker([sharding_key], known.sharding_queues)

    def writable(self, topic: str, deadline: Deadline | None = None) -> dict[str, int]:
        """Returns the writable queues of a topic by broker.

        A topic nobody has may be made at any master; an ordered one is where its list says.
        """
        until = deadline or Deadline(self.call_timeout_s)
        holders = self.routes.holders(topic, until)
        if holders or self.routes.known_order_conf(topic) is not None:
            return {name: nums.writable for name, nums in holders.items() if nums.writable}
        return {name: 1 for name, route in self.routes.brokers(until).items() if route.master is not None}

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            self._closed = True
            for transport in (*self._transports.values(), *self._asking.values()):
                transport.close()

    def _wait_for_route(self, name: str, deadline: Deadline) -> None:
        """Waits for a broker that no route has, until the deadline or what is left for a last try."""
        while deadline.left() > 2 * LOOK_AGAIN_S:
            route = self.routes.brokers(deadline).get(name)
            if route is not None and route.master is not None:
                return
            if self._closed:
                raise Closed("CLIENT_CLOSED", "the client is closed")
            self.routes.failed()
            self._pause(LOOK_AGAIN_S)

    def _transport_to(self, address: str) -> Transport:
        with self._lock:
            if self._closed:
                raise Closed("CLIENT_CLOSED", "the client is closed")
            if address not in self._transports:
                self._transports[address] = Transport(address, **self._settings)
            return self._transports[address]

    def _ask(self, endpoint: str, path: str, seconds: float) -> Any:
        if self._closed:
            raise Closed("CLIENT_CLOSED", "the client is closed")
        if seconds <= 0:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"no time was left to ask {endpoint}", sent=False)
        asked = self._by_address.get(endpoint) or self._transport_to(endpoint)
        return json.loads(asked.call("GET", path, once=True, within_s=seconds).body)


def _one_broker(sharding_keys: Sequence[str], queues: Mapping[str, int]) -> str | None:
    """The broker of all these keys among those that have such queues; None where none has."""
    order = in_order(queues)
    brokers = sorted({of_sharding_key(key, order) for key in sharding_keys} if order else ())
    if len(brokers) > 1:
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"the sharding keys of this request are of several brokers, {', '.join(brokers)}, and a "
            "request goes to one: send the messages of each key by themselves",
            brokers=brokers,
        )
    return brokers[0] if brokers else None


def _unknown(error: LakeMQError, key: str | None) -> OutcomeUnknown:
    """What a store that was closed while a send waited for it comes to."""
    return OutcomeUnknown.of(str(error), key, **error.context)


def _final(error: LakeMQError, unanswered: OutcomeUnknown | None, key: str | None) -> LakeMQError:
    if unanswered is None or isinstance(error, Closed | OutcomeUnknown):
        return error
    what = f"{unanswered.detail.partition('; it may be')[0]}, and elsewhere it was refused ({error})"
    return OutcomeUnknown.of(what, key)


def _stays(error: LakeMQError, name: str, topic: str) -> LakeMQError:
    """Says of a refusal for now why the message does not go to another broker."""
    if not isinstance(error, Unavailable):
        return error
    what = (
        f"{error.detail}; topic {topic} is ordered, and the messages of this sharding key are broker "
        f"{name}'s also while it is away: they go to no other, so that their order holds"
    )
    return Unavailable(error.code, what, **{**error.context, "broker_name": name, "topic": topic})


def _repeated_elsewhere(result: Sent) -> Sent:
    if isinstance(result, BatchResult):
        results = tuple(_repeated_elsewhere(one) for one in result.results)
        return replace(result, repeated_elsewhere=True, results=results)
    return replace(result, repeated_elsewhere=True)
