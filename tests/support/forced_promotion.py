"""A broker whose slave is promoted by force: it lacks the end of what its master showed.

Owns the two brokers and the order of what happens to them.

Invariants: of topic ``t``, with one queue, the master alone had the offsets from ``common`` on, and the slave
gave them a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

TOPIC = "t"


class ForcedPromotion:
    """A master and its slave.

    Args:
        root: Holds their directories.
        common: How many messages both get.
    """

    def __init__(self, root: Path, common: int = 2) -> None:
        self._on_exit = ExitStack()
        self.master = self._started(root / "m", "--role", "async-master")
        try:
            with self.master.client() as client:
                client.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
            follows = ("--role", "slave", "--broker-id", "1", "--master", self.master.endpoint)
            self.slave = self._started(root / "s", *follows)
            self.old = send(self.master, [f"both {number}" for number in range(common)])
            wait_until(lambda: shown(self.slave) == common, otherwise="the slave has what both get")
        except BaseException:
            self._on_exit.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._on_exit.close()

    def lose(self, count: int) -> None:
        """The master gets messages that the slave never has."""
        with self.master.client() as client:
            end = client.replication()["appended"]
        with self.slave.client() as client:
            wait_until(lambda: client.replication()["confirmed"] == end, otherwise="the slave has all before")
        self.slave.kill()
        self.old += send(self.master, [f"lost {number}" for number in range(count)])

    def promote(self) -> None:
        """The master dies, and the slave is the master from here on."""
        self.master.kill()
        self.slave.start()
        with self.slave.client() as client:
            client.promote("async-master", force=True)

    def _started(self, directory: Path, *arguments: str) -> BrokerProcess:
        broker = BrokerProcess(directory, arguments=(*arguments, "--ha-port", "0"))
        self._on_exit.callback(broker.close)
        return broker


def send(broker: BrokerProcess, bodies: Iterable[str]) -> list[str]:
    """Sends messages one by one; returns the bodies, in the order of their queue offsets."""
    sent = list(bodies)
    with broker.client() as client:
        assert {client.send(TOPIC, body, keys=[body.replace(" ", "-")]).status for body in sent} <= {
            "SEND_OK",
            "SLAVE_NOT_AVAILABLE",
        }
    return sent


def shown(broker: BrokerProcess) -> int:
    """How many messages a broker shows."""
    with broker.client() as client:
        if TOPIC not in {config.topic for config in client.topics()}:
            return 0
        return client.queues(TOPIC)[0].confirmed_offset
