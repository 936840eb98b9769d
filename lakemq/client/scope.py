"""Which brokers of a cluster a call of the client goes to.

Owns the rule of each kind of call, as decorators of the calls in the modules named *_api.py. With one
broker's address a call goes there, as it is. With several, or once the one turns out to be a name server's:

    on_every_master     topics and groups are changed on every master; an error says where it was done
    on_every_master_of_a_list  as that, where all brokers of an ordered topic's list answer
    from_any            the first broker that knows it answers
    from_all            the brokers' lists are one list; with a name, one entry for each value of it
    of_one_broker       what belongs to one broker: the one that ``broker_name`` names, or the only one

Where a send goes is in cluster.py.

Invariants: an address that is a broker's costs no request besides: that it is a name server shows in what it
refuses, and only a broker's name that is given has to be asked for; name servers are waited for within the
time of the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import update_wrapper
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from lakemq.client.deadline import Deadline
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable, from_code

if TYPE_CHECKING:
    from lakemq.client.broker_transport import BrokerTransport
    from lakemq.client.cluster import Cluster
    from lakemq.client.transport import Transport

log = logging.getLogger("lakemq.client")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Method = Callable[Concatenate[S, P], R]
Rule = Callable[["Cluster[Any]", Callable[[Any], Any], Mapping[str, Any], Deadline], Any]
"""(cluster, the call on one broker's client, its arguments by name, until when) -> its result."""

_NOT_THERE = frozenset({"TOPIC_NOT_EXIST", "GROUP_NOT_EXIST", "MESSAGE_NOT_EXIST"})
NAME_SERVERS_REFUSAL = "REQUEST_CODE_NOT_SUPPORTED"


class Scoped:
    """What the calls know of the brokers; the client has it."""

    _transport: Transport | BrokerTransport
    _cluster: Cluster[Any] | None

    @property
    def is_routed(self) -> bool:
        """Whether calls go by routes: there are several addresses, or the one is known as a name server's."""
        return self._cluster is not None

    @property
    def cluster_routes(self) -> Cluster[Any]:
        """The brokers, where there are several."""
        assert self._cluster is not None, "one broker has no routes"
        return self._cluster

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that does not say so itself."""
        until = self._transport.retry_until
        return self._transport.timeout_s if until is None else until

    @property
    def repeats_until_time(self) -> bool:
        """Whether a call that may be repeated is until its time is over, however often that is."""
        return self._transport.retry_until is not None

    def refused_by_name_server(self, refused: LakeMQError, deadline: Deadline) -> bool:
        """Says whether a refusal was a name server's; from then on calls go by its routes."""
        return refused.code == NAME_SERVERS_REFUSAL and self.look_for_name_server(deadline)

    def look_for_name_server(self, deadline: Deadline | None = None) -> bool:
        """Asks the one endpoint whether it is a name server."""
        raise NotImplementedError

    def check_broker_name(self, name: str, deadline: Deadline | None = None) -> None:
        """Refuses another name than the one broker's; where there are several, their routes tell."""
        raise NotImplementedError


def _scoped(rule: Rule) -> Callable[[Method[S, P, R]], Method[S, P, R]]:
    def decorate(method: Method[S, P, R]) -> Method[S, P, R]:
        names = method.__code__.co_varnames[1 : method.__code__.co_argcount]

        def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
            client: Any = self
            deadline = Deadline(client.call_timeout_s)
            named: Any = kwargs.get("broker_name")
            if named is not None and not client.is_routed:
                client.check_broker_name(named, deadline)
            if not client.is_routed:
                try:
                    return method(self, *args, **kwargs)
                except InvalidRequest as refused:
                    if not client.refused_by_name_server(refused, deadline):
                        raise
            given = {**dict(zip(names, args, strict=False)), **kwargs}

            def on(broker: Any) -> R:
                return method(broker, *args, **kwargs)

            result: R = rule(client.cluster_routes, on, given, deadline)
            return result

        return update_wrapper(call, method)  # type: ignore[return-value]  # a method as before

    return decorate


def _on_every_master(
    cluster: Cluster[Any], on: Callable[[Any], Any], given: Mapping[str, Any], deadline: Deadline
) -> Any:
    results: dict[str, Any] = {}
    missing: LakeMQError | None = None
    failures: list[LakeMQError] = []
    for name, broker in cluster.brokers(deadline=deadline).items():
        try:
            results[name] = on(broker)
        except LakeMQError as error:
            if error.code in _NOT_THERE:
                missing = error
            else:
                failures.append(error)
    if unknown := cluster.routes.unknown(deadline):
        who = f"{', '.join(unknown)} never answered: which broker that is, is not known"
        failures.append(Unavailable("SERVICE_NOT_AVAILABLE", who))
    if failures:
        done = f"; done on {', '.join(results)}" if results else ""
        first = failures[0]
        raise type(first)(
            first.code, "; ".join(error.detail for error in failures) + done, **first.context
        ) from first
    if not results and missing is not None:
        raise missing
    return next(iter(results.values()), None)


def _on_every_master_of_a_list(
    cluster: Cluster[Any], on: Callable[[Any], Any], given: Mapping[str, Any], deadline: Deadline
) -> Any:
    topic = given["topic"]
    cluster.routes.failed()  # another list may hold since
    cluster.routes.holders(topic, deadline)
    conf = cluster.routes.known_order_conf(topic)
    away = [name for name in conf.write_queue_nums if not _takes_changes(cluster, name)] if conf else []
    if away:
        raise Unavailable(
            "SERVICE_NOT_AVAILABLE",
            f"broker {', '.join(away)} is away, and topic {topic} is ordered over {conf}: it would come back "
            "with it, list and all. Nothing was changed; wait for it, or take it off the list first "
            f"(lakemq topic order {topic})",
            topic=topic,
            sent=False,
        )
    return _on_every_master(cluster, on, given, deadline)


def _takes_changes(cluster: Cluster[Any], name: str) -> bool:
    try:
        return bool(cluster.broker(name).replication()["role"] != "slave")
    except (Unavailable, Closed):
        return False


def _from_any(
    cluster: Cluster[Any], on: Callable[[Any], Any], given: Mapping[str, Any], deadline: Deadline
) -> Any:
    missing: LakeMQError | None = None
    away: LakeMQError | None = None
    for broker in cluster.brokers(deadline=deadline).values():
        try:
            return on(broker)
        except (Unavailable, Closed) as error:
            away = error
        except InvalidRequest as error:
            if error.code not in _NOT_THERE:
                raise
            missing = error
    # What a broker that is away has is not known: that it does not exist cannot be said.
    raise away or missing or _no_broker()


def _from_all(name: str | None) -> Rule:
    def rule(
        cluster: Cluster[Any], on: Callable[[Any], Any], given: Mapping[str, Any], deadline: Deadline
    ) -> Any:
        found: list[Any] = []
        failures: list[LakeMQError] = []
        missing: LakeMQError | None = None
        answered = False
        for broker in cluster.brokers(deadline=deadline).values():
            try:
                found += on(broker)
                answered = True
            except (Unavailable, Closed) as error:
                failures.append(error)
            except InvalidRequest as error:
                if error.code not in _NOT_THERE:
                    raise
                missing = error
        if not answered:
            raise (failures[0] if failures else missing) or _no_broker()
        for left_out in failures:
            log.warning("left out: %s", left_out)
        if name is None:
            return found
        return sorted(
            {getattr(entry, name): entry for entry in reversed(found)}.values(), key=attrgetter(name)
        )

    return rule


def _of_one_broker(
    cluster: Cluster[Any], on: Callable[[Any], Any], given: Mapping[str, Any], deadline: Deadline
) -> Any:
    named = given.get("broker_name")
    if named is not None:
        return on(cluster.broker(named))
    topic = given.get("topic")
    names = list(cluster.brokers(topic, deadline))
    if topic is not None and not names:
        raise from_code("TOPIC_NOT_EXIST", f"topic[{topic}] not exist, no broker has it", topic=topic)
    if len(names) != 1:
        what = "this" if topic is None else f"topic {topic}"
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"{what} is of several brokers, {', '.join(names)}: name one (broker_name)",
            brokers=names,
        )
    return on(cluster.broker(names[0]))


def _no_broker() -> LakeMQError:
    return Unavailable("SERVICE_NOT_AVAILABLE", "no broker is known")


on_every_master = _scoped(_on_every_master)
on_every_master_of_a_list = _scoped(_on_every_master_of_a_list)
from_any = _scoped(_from_any)
of_one_broker = _scoped(_of_one_broker)


def from_all(name: str | None = None) -> Callable[[Method[S, P, R]], Method[S, P, R]]:
    """The brokers' lists are one list.

    Args:
        name: The attribute that names an entry, when brokers may have the same one.
    """
    return _scoped(_from_all(name))
