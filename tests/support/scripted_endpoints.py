"""The name servers and brokers that a client asks for its routes, as a test says.

Owns what each of them answers, and who was asked.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lakemq.client.routes import ASK_TIMEOUT_S, Routes
from store_native.errors import InvalidRequest, Unavailable
from store_native.order_conf import OrderConf

ONE, TWO = "http://names-1:9876", "http://names-2:9876"
A, B, A_SLAVE = "http://a:8090", "http://b:8090", "http://a-slave:8090"
TOPIC = {"read_queue_nums": 4, "write_queue_nums": 2, "perm": 6}


class Endpoints:
    """Answers as name servers and brokers do; who is ``down`` does not."""

    def __init__(self) -> None:
        self.now = 100.0
        self.down: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.registered: dict[str, dict[str, dict[str, str]]] = {
            ONE: {"a": {"0": A, "1": A_SLAVE}, "b": {"0": B}}
        }
        self.registered[TWO] = self.registered[ONE]
        self.brokers: dict[str, tuple[str, int, str]] = {
            A: ("a", 0, "async-master"),
            A_SLAVE: ("a", 1, "slave"),
            B: ("b", 0, "sync-master"),
        }
        self.topics = {"orders": ["a", "b"]}
        self.without_table: set[str] = set()
        self.order_confs: dict[str, OrderConf] = {}  # what each broker has with every topic
        self.told: OrderConf | None = None  # and what a name server remembers
        self.epochs: dict[str, int] = {}
        self.store_ids: dict[str, str] = {}
        self.given_s: list[float] = []

    def ask(self, endpoint: str, path: str, seconds: float = ASK_TIMEOUT_S) -> Any:
        self.asked.append((endpoint, path))
        self.given_s.append(seconds)
        if endpoint in self.down:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"no connection to {endpoint}")
        what, _, topic = path.removeprefix("/api/v1/").partition("/")
        if endpoint in self.brokers:
            name, broker_id, role = self.brokers[endpoint]
            if what == "topics":
                conf = self.order_confs.get(name)
                attributes = {} if conf is None else conf.attributes()
                return self._of_topic(
                    topic, name in self.topics.get(topic, []), {**TOPIC, "attributes": attributes}
                )
            epoch, store_id = self.epochs.get(endpoint, 1), self.store_ids.get(endpoint, endpoint)
            cluster = {"broker_name": name, "broker_id": broker_id, "epoch": epoch, "store_id": store_id}
            return {"cluster": cluster, "replication": {"role": role, "epoch": epoch}}[what]
        if what == "cluster":
            registered = self.registered[endpoint].items()
            return {"brokers": [self._registered(name, addresses) for name, addresses in registered]}
        holders = [name for name in self.topics.get(topic, []) if name not in self.without_table]
        names = [name for name in holders if "0" in self.registered[endpoint].get(name, {})]
        rows = [{"broker_name": name, **TOPIC, "order_conf": self._conf_of(name)} for name in names]
        told = None if self.told is None else asdict(self.told)
        return self._of_topic(topic, names or told, {"queues": rows, "order_conf": told})

    def routes(self, *endpoints: str) -> Routes:
        return Routes(endpoints, self.ask, clock=lambda: self.now)

    def _conf_of(self, name: str) -> dict[str, Any] | None:
        conf = self.order_confs.get(name)
        return None if conf is None else asdict(conf)

    def _registered(self, name: str, addresses: dict[str, str]) -> dict[str, Any]:
        epoch = self.epochs.get(addresses.get("0", ""), 1)
        return {"broker_name": name, "addresses": addresses, "epoch": epoch if "0" in addresses else None}

    def _of_topic(self, topic: str, exists: object, answer: Any) -> Any:
        if not exists:
            raise InvalidRequest("TOPIC_NOT_EXIST", topic)
        return answer
