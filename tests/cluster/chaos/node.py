"""One broker of a replicated name: started as its master or as a slave of another, and killed many times.

Owns what it was told to be at its last start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakemq.client import Client
from tests.cluster.chaos.broker import ChaosBroker
from tests.support.processes import LOOPBACK, free_ports


class Node:
    """One broker.

    Args:
        directory: holds its store.
        broker_id: as a slave.
        flush: `sync`: what is acknowledged is on the disk of each that counts.
        min_in_sync: how many slaves must have a message, where it is the master.

    Attributes:
        follows: the master it was told of; None for a master.
    """

    def __init__(self, directory: Path, broker_id: int, flush: str, min_in_sync: int) -> None:
        self.broker = ChaosBroker(directory, flush, free_ports())
        self.follows: Node | None = None
        self._broker_id = broker_id
        self._min_in_sync = min_in_sync

    @property
    def name(self) -> str:
        return self.broker.directory.name

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.broker.port}"

    def launch(self, master: Node | None) -> None:
        """Starts it as a slave of a master, or as the master; does not wait for it."""
        role: tuple[str, ...] = ("--role", "sync-master")
        if master is not None:
            role = ("--role", "slave", "--broker-id", str(self._broker_id), "--master", master.endpoint)
        self.broker.arguments = (*role, "--ha-port", "0", "--min-in-sync", str(self._min_in_sync))
        self.broker.launch()
        self.follows = master

    def promote(self) -> int:
        """Makes the slave a synchronous master; returns the new epoch."""
        with self.client() as client:
            status = client.replication()
            # Chosen for having all that was answered; it may not have begun the master's epoch yet.
            has_not_begun = status["epochs"][-1]["epoch"] < status["epoch"]
            epoch = int(client.promote("sync-master", force=has_not_begun)["epoch"])
        self.follows = None
        return epoch

    def client(self, timeout_s: float = 30.0) -> Client:
        return Client(self.endpoint, retries=0, timeout_s=timeout_s, routed=False)

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            return client.replication()
