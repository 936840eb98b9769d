"""The client itself: its endpoints, their pools, and the calls of the three modules beside it.

Owns the transport's life.

Invariants: safe to share between threads; pickled it is its settings, so that a Spark task opens its own
connections.
"""

from __future__ import annotations

import copy
import threading
from typing import Any, Self

from lakemq.client.admin_api import AdminApi
from lakemq.client.broker_transport import BrokerTransport
from lakemq.client.cluster import Cluster
from lakemq.client.endpoint import Endpoint, chosen_endpoints
from lakemq.client.produce_api import ProduceApi
from lakemq.client.pull_api import PullApi
from lakemq.client.transport import Transport, normal_endpoint, path_of


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
        routed: bool = True,
    ) -> None:
        self._settings: dict[str, Any] = {
            "timeout_s": timeout_s,
            "retries": retries,
            "pool_size": pool_size,
            "retry_until": retry_until,
        }
        self._avoid_slow = avoid_slow
        self._broker_name: str | None = None
        self._cluster: Cluster[Client] | None = None
        self._looking = threading.Lock()
        self._is_one_broker = not routed
        self._endpoints = tuple(normal_endpoint(one) for one in chosen_endpoints(endpoint))
        self._transport: Transport | BrokerTransport = Transport(self._endpoints[0], **self._settings)
        if len(self._endpoints) > 1 and routed:
            self._cluster = self._make_cluster()

    @property
    def endpoint(self) -> str:
        """The address it was given; several with commas between them."""
        return self._transport.endpoint if self._broker_name else ",".join(self._endpoints)

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that does not say so itself."""
        until = self._transport.retry_until
        return self._transport.timeout_s if until is None else until

    def brokers(self, topic: str | None = None) -> dict[str, Client]:
        """Returns a client for each broker, by broker name; with a topic, for each that holds it.

        The client of one broker asks its master, and its slaves for reads when the master does not answer. It
        lives as long as this one.
        """
        if self.is_cluster():
            return self.cluster_routes.brokers(topic)
        return {str(self.cluster()["broker_name"]): self}

    def broker(self, name: str) -> Client:
        """Returns the client of one broker; see :meth:`brokers`."""
        return self.cluster_routes.broker(name) if self.is_cluster() else self

    def is_cluster(self) -> bool:
        """Says whether several brokers may be behind the endpoint; asks it, if that is not known yet."""
        return self.is_routed or self.look_for_name_server()

    def look_for_name_server(self) -> bool:
        """Asks the one endpoint whether it is a name server."""
        if self._is_one_broker:
            return False
        with self._looking:
            if self._cluster is None:
                said = self._transport.call("GET", path_of("cluster")).read(dict)
                if "broker_name" in said:
                    self._is_one_broker = True
                else:
                    self._cluster = self._make_cluster()
            return self._cluster is not None

    def lane(self, topic: str, sharding_key: str | None) -> str | None:
        """Returns what messages have in common that may go in one request; the producer's batches keep to it.

        Raises:
            Unavailable: No broker is known.
        """
        if sharding_key is None or not self.is_routed:
            return None
        return self.cluster_routes.broker_of([sharding_key], topic)

    def close(self) -> None:
        """Closes the connections; what is under way ends, further calls raise Closed."""
        self._transport.close()
        if self._cluster is not None:
            self._cluster.close()

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

    def _make_cluster(self) -> Cluster[Client]:
        return Cluster(self._endpoints, self._settings, self._of_broker, avoid_slow=self._avoid_slow)

    def _of_broker(self, transport: BrokerTransport) -> Client:
        client = copy.copy(self)
        client.__dict__.update(
            _broker_name=transport.name, _is_one_broker=True, _cluster=None, _transport=transport
        )
        return client


def _rebuild(
    cls: type[Client], endpoints: tuple[str, ...], settings: dict[str, Any], broker_name: str | None
) -> Client:
    client = cls(endpoints, **settings)
    return client if broker_name is None else client.broker(broker_name)
