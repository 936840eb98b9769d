"""Brokers of one name, as processes: a master and its slaves.

Owns how they are started with one secret, and what is asked of them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from store_native.errors import InvalidRequest
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

T = TypeVar("T")
SECRET = {"LAKEMQ_CLUSTER_SECRET": "sixteen bytes at least"}
NO_WAIT = "[limits]\nsync_flush_timeout_s = 1.0\n"


class Cluster:
    """Brokers that are closed at the end."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        self._root = root
        self._on_exit = on_exit

    def master(self, role: str = "sync-master", name: str = "m", **options: Any) -> BrokerProcess:
        return self.start(name, ("--role", role, "--ha-port", "0"), **options)

    def slave(self, master: BrokerProcess, broker_id: int = 1, **options: Any) -> BrokerProcess:
        arguments = ("--role", "slave", "--broker-id", str(broker_id), "--master", master.endpoint)
        name = options.pop("name", f"s{broker_id}")
        return self.start(name, (*arguments, "--ha-port", "0"), **options)

    def start(self, name: str, arguments: tuple[str, ...], **options: Any) -> BrokerProcess:
        settings: dict[str, Any] = {"environment": SECRET, "config": NO_WAIT, **options}
        broker = BrokerProcess(self._root / name, arguments=arguments, **settings)
        self._on_exit.callback(broker.close)
        return broker


def status(broker: BrokerProcess) -> dict[str, Any]:
    with broker.client() as client:
        return client.replication()


def wait_following(master: BrokerProcess, slaves: int = 1) -> None:
    wait_until(lambda: len(status(master)["slaves"]) == slaves, otherwise="the slaves follow")


def there(look: Callable[[], T]) -> T | None:
    """What a broker answers; None while it has not got the topic or group: a slave may lag behind."""
    try:
        return look()
    except InvalidRequest as error:
        if error.code not in ("TOPIC_NOT_EXIST", "GROUP_NOT_EXIST"):
            raise
        return None


def bodies(broker: BrokerProcess, topic: str = "t") -> list[str]:
    with broker.client() as client:
        if topic not in {config.topic for config in client.topics()}:
            return []
        return [
            message.body.decode()
            for queue in range(4)
            for message in client.pull(topic, queue, 0, max=1000).messages
        ]


def post(broker: BrokerProcess, body: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{broker.endpoint}/api/v1/topics/t/messages",
        json.dumps({"body": body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
