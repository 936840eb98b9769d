"""Processes of one cluster behind certificates, with its secret.

Owns their names, their directories and their end.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lakemq.tls.files import TlsFiles
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import arguments
from tests.support.name_servers import NameServer
from tests.support.waiting import wait_until

SECRET = {"LAKEMQ_CLUSTER_SECRET": "sixteen bytes at least"}
CA_FILE = "LAKEMQ_CA_FILE"


class Cluster:
    """Processes that are closed at the end."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        self._root = root
        self._on_exit = on_exit

    def start(self, name: str, *words: str, files: TlsFiles | None = None) -> BrokerProcess:
        given = (*words, *(arguments(files) if files else ()))
        started = BrokerProcess(self._root / name, arguments=given, environment=SECRET)
        self._on_exit.callback(started.close)
        return started

    def master(self, files: TlsFiles | None, role: str = "sync-master", name: str = "m") -> BrokerProcess:
        return self.start(name, "--role", role, "--ha-port", "0", files=files)

    def slave(
        self, master: str, files: TlsFiles | None, *words: str, name: str = "s", broker_id: int = 1
    ) -> BrokerProcess:
        role = ("--role", "slave", "--broker-id", str(broker_id), "--master", master, "--ha-port", "0")
        return self.start(name, *role, *words, files=files)

    def name_server(self, files: TlsFiles | None) -> NameServer:
        server = NameServer(self._root, "names", *(arguments(files) if files else ()))
        self._on_exit.callback(server.kill)
        return server


def status(broker: BrokerProcess) -> dict[str, Any]:
    with broker.client() as client:
        return client.replication()


def wait_following(master: BrokerProcess) -> None:
    wait_until(lambda: len(status(master)["slaves"]) == 1, otherwise="the slave follows")


def ha_port_of(master: BrokerProcess) -> int:
    found = re.search(r"listening for slaves.*?port=(\d+)", master.log())
    assert found is not None, master.log()
    return int(found[1])
