"""A query of Spark's source over all brokers of a name, driven as Spark drives it and started anew each time.

Owns the judgement of what it read: that is there for good, once, in its order and without a hole.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from lakemq.client import LakeMQError
from store_native.errors import Unavailable
from structured_streaming.source.stream_reader import LakeMQStreamReader
from tests.cluster.chaos.load import Job
from tests.cluster.chaos.node import Node
from tests.cluster.chaos.writers import TOPICS
from tests.support.checker import identity, read_http

_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("body", BinaryType()),
    ]
)
_TRIGGER_S = 0.05
_MOST_BATCHES = 1_000

Place = tuple[str, int, int]


class Query:
    """One query with its checkpoint, over all rounds of a store."""

    def __init__(self) -> None:
        self._position: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self._read: dict[Place, str] = {}
        self._problems: list[str] = []
        self._beside_kills = 0

    def prepare(self, master: Node) -> None:
        with master.client() as client:
            for topic in TOPICS:
                client.put_topic(topic, read_queue_nums=4, write_queue_nums=4)

    def jobs(self, master: Node, slaves: Sequence[Node]) -> list[Job]:
        return [partial(self._run, [master, *slaves])]

    def problems(self, master: Node) -> list[str]:
        there = _found(master)
        wrong = [place for place, id_ in self._read.items() if there.get(place) != id_]
        if wrong:
            self._problems.append(f"the query read {len(wrong)} messages that are not there: {wrong[:3]}")
        reached: dict[tuple[str, int], int] = {}
        for topic, queue_id, offset in self._read:
            reached[topic, queue_id] = max(offset + 1, reached.get((topic, queue_id), 0))
        if sum(reached.values()) != len(self._read):
            self._problems.append(f"the query left messages out: it has {len(self._read)} of {reached}")
        return self._problems

    def problems_at_end(self, master: Node) -> list[str]:
        """Reads what is left."""
        if not self._beside_kills:
            return ["no batch of the query ended beside the load: it was not tried"]
        stop = threading.Event()
        there = _found(master)
        reader = self._started([master])
        for _ in range(_MOST_BATCHES):
            if len(self._read) >= len(there) or self._problems:
                break
            self._batch(reader)
            stop.wait(_TRIGGER_S)
        reader.stop()
        if len(self._read) != len(there):
            self._problems.append(f"the query has read {len(self._read)} of {len(there)} messages")
        return self.problems(master)

    def _run(self, nodes: Sequence[Node], stop: threading.Event) -> None:
        reader = self._started(nodes)
        while not stop.wait(_TRIGGER_S) and not self._problems:
            try:
                self._batch(reader)
                self._beside_kills += 1
            except Unavailable:
                continue  # the batch is run again
            except LakeMQError as error:
                self._problems.append(f"the query ended: {error}")
        reader.stop()

    def _started(self, nodes: Sequence[Node]) -> LakeMQStreamReader:
        options = {
            "endpoint": ",".join(node.endpoint for node in nodes),
            "subscribe": ",".join(TOPICS),
            "startingOffsets": "earliest",
            "retryTimeoutMs": "1000",
        }
        return LakeMQStreamReader(options, _SCHEMA)

    def _batch(self, reader: LakeMQStreamReader) -> None:
        """Runs one batch; its end is noted before, as in Spark's offset log."""
        if self._position is None:
            self._position = reader.initialOffset()
        if self._planned is None:
            self._planned = reader.latestOffset(self._position, None)
        rows = [
            row
            for piece in reader.partitions(self._position, self._planned)
            for batch in reader.read(piece)
            for row in batch.to_pylist()
        ]
        for row in rows:
            place = (row["topic"], row["queue_id"], row["queue_offset"])
            if place in self._read:
                self._problems.append(f"the query read {place} twice")
            self._read[place] = identity(row["body"])
        self._position, self._planned = self._planned, None
        reader.commit(self._position)


def _found(master: Node) -> dict[Place, str]:
    return {(at.topic, at.queue_id, at.queue_offset): at.id for at in read_http(master.broker.port, TOPICS)}
