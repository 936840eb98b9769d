"""The cluster of the compose file: its commands, on loopback addresses in place of the services' names.

What is not shown: images, volumes, and that a network has these names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakemq import Client
from lakemq.broker_process import BrokerProcess
from lakemq.client import InvalidRequest, Unavailable
from tests.support.broker_process import SMALL_FILES
from tests.support.fork_server import ForkedProcess
from tests.support.waiting import wait_until

COMPOSE = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "compose-cluster.yaml"
SERVICE = re.compile(r"^  ([a-z-]+):\n(?:    (?!command).*\n)*    command: (\[[^]]*\])", re.MULTILINE)
SECRET = {"LAKEMQ_CLUSTER_SECRET": "sixteen bytes at least"}
NAMES_PORT, PORT = 9876, 8090


class Services:
    """The services of the file that run on and on, each with a loopback address of its own.

    Attributes:
        at: Their addresses.
        running: Those that were started, by name.
    """

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        found = SERVICE.findall(COMPOSE.read_text(encoding="utf-8"))
        self._commands: dict[str, list[str]] = {name: json.loads(words) for name, words in found}
        del self._commands["cli"]
        ours = f"127.{os.getpid() % 200 + 10}.93"  # another run on this machine has the same ports
        self.at = {name: f"{ours}.{number}" for number, name in enumerate(self._commands, start=1)}
        self.running: dict[str, BrokerProcess] = {}
        self._root = root
        self._on_exit = on_exit
        self._config = root / "broker.toml"
        self._config.write_text(SMALL_FILES, encoding="utf-8")

    def start(self, name: str) -> None:
        """Starts one and waits until it serves."""
        command, *words = [self._here(name, word) for word in self._commands[name]]
        log, start = (
            self._root / f"{name}.log",
            partial(BrokerProcess, environment=SECRET, starts=ForkedProcess),
        )
        if command == "nameserver":
            process = start(words, log, command="nameserver")
        else:
            assert command == "serve"
            process = start([*words, "--config", str(self._config)], log)
        self._on_exit.callback(process.close)
        process.wait_ready()
        self.running[name] = process

    @property
    def names(self) -> list[str]:
        return list(self._commands)

    def _here(self, service: str, word: str) -> str:
        """A word of the command with addresses for names, and a directory of its own for the volume."""
        if word == "0.0.0.0":
            return self.at[service]
        if word.startswith("/var/lib/lakemq"):
            return word.replace("/var/lib/lakemq", str(self._root / service), 1)
        for name, address in self.at.items():
            word = re.sub(rf"(^|//){name}(?=:\d)", rf"\g<1>{address}", word)
        return word


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with ExitStack() as on_exit:
        yield Services(tmp_path, on_exit)


def test_a_master_of_the_composed_cluster_dies_and_its_slave_takes_its_place(services: Services) -> None:
    assert services.names == ["names", "broker-a", "broker-a-slave", "broker-b", "broker-b-slave"]
    for name in services.names:
        services.start(name)
    with Client(f"http://{services.at['names']}:{NAMES_PORT}", timeout_s=10) as client:
        client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
        wait_until(lambda: len(_holders(client)) == 2, otherwise="the name server knows the topic")
        masters = {name: broker.endpoint for name, broker in client.brokers("orders").items()}
        assert masters == {name: f"http://{services.at[name]}:{PORT}" for name in ("broker-a", "broker-b")}
        for broker in client.brokers().values():
            wait_until(partial(_is_followed, broker), otherwise="its slave follows")
            assert broker.send("orders", "kept").status == "SEND_OK"
        services.running["broker-a"].kill()
        with Client(f"http://{services.at['broker-a-slave']}:{PORT}", routed=False) as slave:
            slave.promote()
        wait_until(lambda: _stored(client, "broker-a") == ["kept"], otherwise="the slave has what was sent")
        with pytest.raises(Unavailable, match=services.at["broker-a"]):
            Client(f"http://{services.at['broker-a']}:{PORT}", retries=0).topics()


def _holders(client: Client) -> list[Any]:
    try:
        queues: list[Any] = client.route("orders")["queues"]
    except InvalidRequest:
        return []
    return queues


def _is_followed(broker: Client) -> bool:
    return len(broker.replication()["slaves"]) == 1


def _stored(client: Client, broker_name: str) -> list[str]:
    try:
        return [message.text for message in client.broker(broker_name).pull("orders", 0, 0).messages]
    except Unavailable:
        return []
