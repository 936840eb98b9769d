"""The client itself: its endpoints, their pools, and the calls of the three modules beside it.

Owns the transport's life.

Invariants: safe to share between threads; pickled it is its settings, so that a Spark task opens its own
connections.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from lakemq.client.admin_api import AdminApi
from lakemq.client.broker_transport import BrokerTransport
from lakemq.client.cluster import Cluster
from lakemq.client.deadline import Deadline, held
from lakemq.client.endpoint import Endpoint, chosen_ca_file, chosen_endpoints
from lakemq.client.order_change import OrderChange, order_topic
from lakemq.client.produce_api import ProduceApi
from lakemq.client.pull_api import PullApi
from lakemq.client.results import MessageQueue
from lakemq.client.transport import Transport, normal_endpoint, path_of
from store_native.errors import InvalidRequest, Unavailable, from_code
from store_native.order_conf import OrderConf


class Client(ProduceApi, PullApi, AdminApi):
    """Speaks to a LakeMQ broker, or to the brokers of a cluster.

    >>> client = Client("http://127.0.0.1:8090")
    >>> client.send("orders", {"id": 17}, tags="created", keys=["17"]).queue_offset
    0

    Args:
        endpoint: The broker's address, a name server's, or several of either (a sequence, or one text with
            commas); None is the environment's LAKEMQ_ENDPOINT, else http://127.0.0.1:8090.
        timeout_s: How long a call may take in all, its repeats included; a long poll adds its own
            waiting time. A call that goes to several brokers takes as long for each.
        retries: How often a call that may be repeated is repeated within that time.
        pool_size: Connections to each broker, hence threads that can be served at the same time.
        retry_until: A call that may be repeated is repeated until so many seconds after its begin,
            whatever ``retries`` says; one attempt then takes at most ``timeout_s``.
        avoid_slow: Sends to several brokers avoid for a while those that answered slowly
            (:mod:`lakemq.client.broker_choice`), not only those that failed.
        ca_file: The authorities, in PEM form, whose certificates are believed of https addresses; None is the
            environment's LAKEMQ_CA_FILE, else the system's.
        compression: ``none``, ``gzip`` or ``zstd``: how requests of more than 4,096 bytes that store messages
            are compressed on their way. It saves the network, and costs both sides time; what is stored is
            the same.
        routed: False takes the one address for a broker's, whatever it answers.
    """

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 2,
        pool_size: int = 16,
        retry_until: float | None = None,
        avoid_slow: bool = False,
        ca_file: str | None = None,
        compression: str = "none",
        routed: bool = True,
    ) -> None:
        self._settings: dict[str, Any] = {
            "timeout_s": timeout_s,
            "retries": retries,
            "pool_size": pool_size,
            "retry_until": retry_until,
            "ca_file": chosen_ca_file(ca_file),
            "compression": compression,
        }
        self._avoid_slow = avoid_slow
        self._broker_name: str | None = None  # of several, the one that this is the client of
        self._own_name: str | None = None  # of the one broker, as it said itself
        self._cluster: Cluster[Client] | None = None
        self._own_routes: Cluster[Client] | None = None  # for the queues of one broker, alone or of several
        self._closes_routes = True
        self._looking = threading.Lock()
        self._is_one_broker = not routed
        self._endpoints = tuple(normal_endpoint(one) for one in chosen_endpoints(endpoint))
        self._transport: Transport | BrokerTransport = Transport(self._endpoints[0], **self._settings)
        if len(self._endpoints) > 1 and routed:
            self._cluster = self._make_cluster()

    @property
    def endpoint(self) -> str:
        """The address it was given, several with commas between them; of one broker of several its master's.

        That is the address where the master was found last, and the broker name before; nobody is asked.
        """
        return self._transport.endpoint if self._broker_name else ",".join(self._endpoints)

    @property
    def slave_answers(self) -> int:
        """How many answers so far were a slave's, or may be behind else; one broker's client counts them."""
        return self._transport.slave_answers

    def brokers(self, topic: str | None = None) -> dict[str, Client]:
        """Returns a client for each broker, by broker name; with a topic, for each that holds it.

        The client of one broker asks its master, and its slaves for reads when the master does not answer. It
        lives as long as this one.
        """
        if self.is_cluster():
            found: dict[str, Client] = self.cluster_routes.brokers(topic)
            for broker in found.values():
                broker._note_address()  # noqa: SLF001 - one of this class
            return found
        return {str(self.cluster()["broker_name"]): self}

    def never_answered(self) -> list[str]:
        """Returns the addresses that did not answer yet: which brokers are behind them is not known.

        Asks them first.

        Raises:
            Unavailable: Nobody answers.
        """
        if not self.is_cluster():
            return []
        routes, deadline = self.cluster_routes.routes, Deadline(self.call_timeout_s)
        if routes.unknown(deadline):
            routes.failed()  # asked a while ago: it may have come since
        return routes.unknown(deadline)

    def broker(self, name: str) -> Client:
        """Returns the client of one broker; see :meth:`brokers`.

        Of several brokers one that is not known may be away: its calls raise Unavailable until it is known.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the endpoint is one broker of another name.
        """
        self.check_broker_name(name)
        return self.cluster_routes.broker(name) if self.is_routed else self

    def is_cluster(self) -> bool:
        """Says whether several brokers may be behind the endpoint; asks it, if that is not known yet."""
        return self.is_routed or self.look_for_name_server()

    def look_for_name_server(self, deadline: Deadline | None = None) -> bool:
        """Asks the one endpoint whether it is a name server."""
        if self._is_one_broker:
            return False
        until = deadline or Deadline(self.call_timeout_s)
        with held(self._looking, until, wait=True) as alone:
            if alone and self._cluster is None:
                said = self._who_it_is(until)
                if "broker_name" in said:
                    self._own_name = str(said["broker_name"])
                    self._is_one_broker = True
                else:
                    self._cluster = self._make_cluster()
            if not (self.is_routed or self._is_one_broker):
                what = f"{self.endpoint} has not said yet whether it is a name server"
                raise Unavailable("SERVICE_NOT_AVAILABLE", what, endpoint=self.endpoint, sent=False)
            return self.is_routed

    def check_broker_name(self, name: str, deadline: Deadline | None = None) -> None:
        """Refuses another name than the one broker's; where there are several, their routes tell.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL; ``brokers`` in its context has the name.
        """
        if self.is_routed or name in (self._broker_name, self._own_name):
            return
        if self._broker_name is None:
            until = deadline or Deadline(self.call_timeout_s)
            if self.look_for_name_server(until) or name == self._own_name:
                return
            # It may have been another one when it was asked the last time.
            self._own_name = str(self._who_it_is(until).get("broker_name", name))
        own = self._broker_name or self._own_name
        if name != own:
            what = f"{self.endpoint} is broker {own}, and there is none besides: {name!r} is not known"
            raise InvalidRequest("ARGUMENT_ILLEGAL", what, brokers=[own], endpoint=self.endpoint)

    def message_queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues of a topic that take messages, by broker and id, as they were 30 s ago at most.

        Of an ordered topic they are those of its list, also of brokers that are away.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST; TOPIC_CONFLICT, the topic is ordered over two lists.
            Unavailable: Nobody says who holds the topic.
        """
        routes = (self.cluster_routes if self.is_cluster() else self._routes_of_one()).routes
        deadline = Deadline(self.call_timeout_s)
        holders = routes.holders(topic, deadline)
        queues = {name: nums.writable for name, nums in holders.items()}
        # One broker alone says nothing of others, where it is asked as such.
        if self.is_routed or self._broker_name is not None:
            conf = routes.order_conf(topic, deadline)
            queues = queues if conf is None else conf.write_queue_nums
        if not queues:
            raise from_code("TOPIC_NOT_EXIST", f"topic[{topic}] not exist, no broker has it", topic=topic)
        return [
            MessageQueue(topic, name, queue_id)
            for name, writable in sorted(queues.items())
            if self._broker_name in (None, name)
            for queue_id in range(writable)
        ]

    def order_conf(self, topic: str) -> OrderConf | None:
        """Returns the list of an ordered topic's brokers by which messages are sent; None: by none.

        Of one broker's address there is none: that broker refuses what its list gives to another.

        Raises:
            InvalidRequest: TOPIC_CONFLICT, the topic is ordered over two lists.
            Unavailable: Nobody says who holds the topic.
        """
        if not self.is_cluster():
            return None
        return self.cluster_routes.routes.order_conf(topic, Deadline(self.call_timeout_s))

    def order_topic(
        self,
        topic: str,
        brokers: Sequence[str] | Mapping[str, int] | None = None,
        *,
        queues: int | None = None,
        read_queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> OrderChange:
        """Makes a topic an ordered one, or gives it another list of brokers, or says what that would do.

        The list is kept with the topic at each of its brokers. A sharding key's messages go to its queue in
        the list and nowhere else: while that broker is away, they fail. A topic that does not exist is made,
        at the brokers of the list. With another list, keys move: their order holds over that only when what
        is in the old queues was handled before the first message goes to the new ones.

        Args:
            topic: The topic.
            brokers: Their names, or names with write queues; None is the list it has, else the brokers that
                have the topic, else all that are known.
            queues: Write queues at each that is named without a number; None is what it has, where it has
                none what others have, 4 in a new topic.
            read_queue_nums, perm, attributes: As for :meth:`put_topic`, at the brokers of the list.
            dry_run: Changes nothing.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, nobody knows a broker that is named, ``brokers`` is one text, or
                a broker would have fewer read than write queues; TOPIC_CONFLICT, another list was given
                meanwhile.
            Unavailable: A broker of the list does not answer, and nothing was changed; or one went away
                meanwhile, and the error says where it was done.
        """
        settings = {"read_queue_nums": read_queue_nums, "perm": perm, "attributes": attributes}
        known: Mapping[str, AdminApi] = self.brokers()
        return order_topic(
            topic,
            brokers,
            known=known,
            routes=self.cluster_routes.routes if self.is_routed else None,
            queues=queues,
            dry_run=dry_run,
            settings=settings,
        )

    def lane(self, topic: str, sharding_key: str | None) -> str | None:
        """Returns what messages have in common that may go in one request; the producer's batches keep to it.

        Raises:
            Unavailable: No broker is known.
        """
        if sharding_key is None or not self.is_routed:
            return None
        return self.cluster_routes.broker_of([sharding_key], topic)

    def known_lane(self, topic: str, sharding_key: str | None) -> str | None:
        """As :meth:`lane`, by what was heard last of the topic: None also where nothing was. Asks nobody."""
        if sharding_key is None or not self.is_routed:
            return None
        return self.cluster_routes.known_broker_of(sharding_key, topic)

    def close(self) -> None:
        """Closes the connections; what is under way ends, further calls raise Closed."""
        self._transport.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._own_routes is not None and self._closes_routes:
            self._own_routes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        routed = self._broker_name is not None or not self._is_one_broker or self.is_routed
        settings = {**self._settings, "avoid_slow": self._avoid_slow, "routed": routed}
        return _rebuild, (type(self), self._endpoints, settings, self._broker_name)

    def _note_address(self) -> None:
        if isinstance(self._transport, BrokerTransport):
            self._transport.look_up(Deadline(self.call_timeout_s))

    def _who_it_is(self, deadline: Deadline) -> dict[str, Any]:
        return self._transport.call("GET", path_of("cluster"), within_s=deadline.left()).read(dict)

    def _routes_of_one(self) -> Cluster[Client]:
        with self._looking:
            if self._own_routes is None:
                self._own_routes = self._make_cluster()
            return self._own_routes

    def _one_of_several(self, broker_name: str) -> Client:
        """Gives itself up for the client of one broker of several, which closes its connections."""
        if self._cluster is None:
            self._cluster = self._make_cluster()
        client = self._cluster.broker(broker_name)
        client._closes_routes = True  # noqa: SLF001 - one of this class
        return client

    def _make_cluster(self) -> Cluster[Client]:
        return Cluster(self._endpoints, self._settings, self._of_broker, avoid_slow=self._avoid_slow)

    def _of_broker(self, transport: BrokerTransport) -> Client:
        client = copy.copy(self)
        client.__dict__.update(
            _broker_name=transport.name,
            _is_one_broker=True,
            _cluster=None,
            _own_routes=self._cluster,
            _closes_routes=False,  # this one does
            _transport=transport,
        )
        return client


def _rebuild(
    cls: type[Client], endpoints: tuple[str, ...], settings: dict[str, Any], broker_name: str | None
) -> Client:
    client = cls(endpoints, **settings)
    return client if broker_name is None else client._one_of_several(broker_name)
