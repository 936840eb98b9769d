"""Name servers under test, and a cluster of brokers that register with them.

Owns the launchers of both.

Invariants: whatever a test did, :meth:`BrokersOfCluster.close` leaves no process behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from lakemq.broker_process import BrokerProcess as Process
from tests.support.broker_process import BrokerProcess
from tests.support.fork_server import ForkedProcess
from tests.support.http import Http
from tests.support.waiting import wait_until


class NameServer:
    """One name server on one port, over as many runs as a test needs."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / f"{name}.log"
        self._arguments = ["--heartbeat-timeout", "3", *arguments]
        self._process: Process | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts it, on the same port again."""
        arguments = [*self._arguments, "--port", str(self.port)]
        self._process = Process(arguments, self._log, command="nameserver", starts=ForkedProcess)
        self._process.wait_ready()
        self.port = self._process.port

    @property
    def url(self) -> str:
        assert self._process is not None
        return self._process.endpoint

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def stop(self) -> int:
        assert self._process is not None
        return self._process.stop()

    def get(self, path: str) -> Any:
        return Http(self.url).get(path).json

    def addresses(self) -> dict[str, dict[str, str]]:
        """Returns addresses by broker name and id."""
        return {entry["broker_name"]: entry["addresses"] for entry in self.get("/cluster")["brokers"]}

    def route(self, topic: str) -> dict[str, dict[str, str]]:
        """Returns the addresses of a topic's route, by broker name and id."""
        return {entry["broker_name"]: entry["addresses"] for entry in self.get(f"/routes/{topic}")["brokers"]}

    def holders(self, topic: str) -> list[str]:
        """Returns the names of the brokers that hold a topic."""
        answer = Http(self.url).get(f"/routes/{topic}")
        return [queues["broker_name"] for queues in answer.json["queues"]] if answer.status == 200 else []


class BrokersOfCluster:
    """Name servers and the brokers that register with all of them, on one machine without a secret.

    Args:
        root: Holds their directories.
        name_servers: How many name servers.
    """

    def __init__(self, root: Path, name_servers: int = 1) -> None:
        self._root = root
        self._on_exit = contextlib.ExitStack()
        self.name_servers: list[NameServer] = []
        self.brokers: dict[str, BrokerProcess] = {}
        for number in range(name_servers):
            self.name_servers.append(NameServer(root, f"names-{number}"))
            self._on_exit.callback(self.name_servers[-1].kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """The name servers, as the option endpoint takes them."""
        return ",".join(server.url for server in self.name_servers)

    def master(self, name: str, *arguments: str) -> BrokerProcess:
        """Starts a master and waits until it is registered everywhere."""
        return self._start(name, name, "0", ("--ha-port", "0", *arguments))

    def slave(self, name: str, broker_id: int = 1) -> BrokerProcess:
        """Starts the next slave of a broker name and waits until it is registered and follows."""
        place = f"{name}-slave" if broker_id == 1 else f"{name}-slave-{broker_id}"
        started = self._slave(name, place, str(broker_id), self.brokers[name])
        _wait_following(self.brokers[name], broker_id)
        return started

    def returned(self, name: str, master: BrokerProcess, *, follows: bool = True) -> BrokerProcess:
        """Starts a name's first broker again, on its store, as a slave of another.

        Args:
            follows: Waits until it does.
        """
        started = self._slave(name, name, "2", master)
        if follows:
            _wait_following(master)
        return started

    def wait_for_topic(self, topic: str, *names: str) -> None:
        """Waits until every name server says that these brokers hold a topic."""
        self._wait(lambda server: server.holders(topic), sorted(names))

    def close(self) -> None:
        """Leaves nothing running."""
        self._on_exit.close()

    def _slave(self, name: str, place: str, broker_id: str, master: BrokerProcess) -> BrokerProcess:
        role = ("--role", "slave", "--broker-id", broker_id, "--master", master.endpoint, "--ha-port", "0")
        return self._start(place, name, broker_id, role)

    def _start(self, place: str, name: str, broker_id: str, arguments: tuple[str, ...]) -> BrokerProcess:
        named = [word for server in self.name_servers for word in ("--nameserver", server.url)]
        given = (*named, "--nameserver_heartbeat_s", "1", *arguments)
        started = BrokerProcess(self._root / place, broker_name=name, arguments=given)
        self._on_exit.callback(started.close)
        self.brokers[place] = started
        self._wait(lambda server: server.addresses().get(name, {}).get(broker_id), started.endpoint)
        return started

    def _wait(self, found: Callable[[NameServer], object], expected: object) -> None:
        wait_until(lambda: all(found(server) == expected for server in self.name_servers))


def _wait_following(master: BrokerProcess, slaves: int = 1) -> None:
    with master.client() as client:
        wait_until(lambda: len(client.replication()["slaves"]) == slaves, otherwise="the slave follows")
