"""Messages of all forms under load: writers that journal, readers at every broker, and repeats of old keys.

Owns the judgement of what is lost, doubled, moved, reordered, or was read and is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from lakemq.client import LakeMQError
from tests.cluster.chaos.load import Job, Reader
from tests.cluster.chaos.node import Node
from tests.cluster.chaos.writers import TOPICS, Writer
from tests.support.checker import Found, check, read_http
from tests.support.journal import read_journals

WRITERS: Final = 3
QUEUES: Final = dict.fromkeys(TOPICS, 4)


class Sends:
    """Writers and readers.

    Args:
        journals: where the writers' journals lie.
        seed: of what they send.

    Attributes:
        acknowledged: messages that were, at the last look.
    """

    def __init__(self, journals: Path, seed: int) -> None:
        self.acknowledged = 0
        self._journals = journals
        self._writers = [
            Writer(f"w{at}", journals, seed * WRITERS + at, only_ok=True) for at in range(WRITERS)
        ]
        self._readers: list[Reader] = []
        self._seen: set[Found] = set()

    def prepare(self, master: Node) -> None:
        """The first sends make the topics."""

    def jobs(self, master: Node, slaves: Sequence[Node]) -> list[Job]:
        nodes = (master, *slaves)
        readers = [Reader(QUEUES) for _ in nodes]
        self._readers += readers
        return [
            *(partial(writer.run, master.broker.port) for writer in self._writers),
            *(partial(reader.run, node) for reader, node in zip(readers, nodes, strict=True)),
        ]

    def problems(self, master: Node) -> list[str]:
        problems = [problem for writer in self._writers for problem in writer.repeat(master.broker.port)]
        sent = read_journals(self._journals)
        try:
            with master.client() as client:
                known = {topic.topic for topic in client.topics()} & set(TOPICS)
            found = read_http(master.broker.port, sorted(known))
        except (AssertionError, LakeMQError, OSError) as error:
            return [*problems, repr(error)]
        report = check("HTTP pull", sent, found)
        self.acknowledged = report.acknowledged
        if not report.clean:
            problems.append(str(report))
        for reader in self._readers:
            self._seen |= reader.seen.keys()
        self._readers.clear()
        if gone := self._seen - set(found):
            problems.append(f"{len(gone)} messages were read and are gone: {sorted(gone)[:3]}")
        return problems

    def problems_at_end(self, master: Node) -> list[str]:
        for writer in self._writers:
            writer.close()
        return []
