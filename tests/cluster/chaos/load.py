"""What a kind of load is to a scenario that kills brokers of one name, and the reader that several kinds use.

Owns the port; the kinds are in sends.py, delayed.py and groups.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lakemq.client import LakeMQError
from tests.cluster.chaos.node import Node
from tests.support.checker import Found, identity

Job = Callable[[threading.Event], None]
"""Runs on a thread of its own until the event is set; what it meets of dying brokers is no failure."""


class Load(Protocol):
    """One kind of load, over all rounds of a store."""

    def prepare(self, master: Node) -> None:
        """Makes its topics and groups; called once, when the first master has its slaves."""

    def jobs(self, master: Node, slaves: Sequence[Node]) -> list[Job]:
        """Says what goes on while brokers are killed; called once for each time they are."""

    def problems(self, master: Node) -> list[str]:
        """Says which promise is broken; called when all brokers are back and have all of the log."""

    def problems_at_end(self, master: Node) -> list[str]:
        """Says what has still not come that must have; called after the last round."""


class Reader:
    """Reads topics of a broker while it lives.

    Args:
        queues: Topic to the number of its queues.

    Attributes:
        seen: What it saw, and when first, in epoch seconds.
    """

    def __init__(self, queues: Mapping[str, int]) -> None:
        self.seen: dict[Found, float] = {}
        self._queues = [(topic, queue) for topic, count in queues.items() for queue in range(count)]

    def run(self, node: Node, stop: threading.Event) -> None:
        """Pulls from the beginning on, until told to stop."""
        reached: dict[tuple[str, int], int] = {}
        with node.client() as client:
            while not stop.is_set():
                for topic, queue in self._queues:
                    try:
                        pulled = client.pull(topic, queue, reached.get((topic, queue), 0), max=200)
                    except LakeMQError:
                        stop.wait(0.01)
                        continue
                    now = time.time()
                    for message in pulled.messages:
                        found = Found(topic, queue, message.queue_offset, identity(message.body))
                        self.seen.setdefault(found, now)
                    reached[topic, queue] = pulled.next_offset
