"""Reads a store over HTTP: bounds as JSON, messages as Arrow streams.

Owns the use of lakemq.client for reading. One client per endpoint and process keeps its
connections, because a Spark worker runs many tasks. Implements readers/base.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakemq.client import Client, QueueBounds
from store_native.errors import LakeMQError, Unavailable
from structured_streaming.offsets import Bounds, EpochOffset
from structured_streaming.readers.base import Chunk

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20

_clients: dict[tuple[str, str | None], Client] = {}
_readers: dict[tuple[str, str | None, str], HttpReader] = {}


class HttpReader:
    """Reads the store of one broker: its master's, or a slave's while the master does not answer.

    Args:
        client: The client of that broker.

    Raises:
        LakeMQError: SERVICE_NOT_AVAILABLE when nobody answers there.
    """

    ahead = True

    def __init__(self, client: Client) -> None:
        self._client = client
        cluster = self._client.cluster()
        self.broker_name = str(cluster["broker_name"])
        self.store_id = str(cluster.get("store_id", ""))

    @property
    def slave_answers(self) -> int:
        return self._client.slave_answers

    def epoch(self) -> int:
        return int(self._client.cluster().get("epoch", 1))

    def topics(self) -> dict[str, str]:
        return {topic.topic: topic.topic_id for topic in self._client.topics()}

    def topic_id(self, topic: str) -> str | None:
        try:
            return self._client.topic(topic).topic_id
        except LakeMQError as error:
            if error.code == "TOPIC_NOT_EXIST":
                return None
            raise

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return {queue.queue_id: held_in(queue) for queue in self._client.queues(topic)}

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return self._client.offset_by_time(topic, queue_id, timestamp)

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        pull = self._client.pull_arrow(
            topic,
            queue_id,
            offset,
            end_offset=end,
            max=BATCH_ROWS,
            max_bytes=BATCH_BYTES,
            tags=tags,
            columns=columns,
        )
        if pull.from_slave and not pull.min_offset <= offset <= end <= pull.max_offset:
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                f"broker {self.broker_name}: its master is away, or was promoted a moment ago; who answers "
                f"shows {topic} queue {queue_id} from {pull.min_offset} to {pull.max_offset}, not from "
                f"{offset} to {end}",
            )
        batch = pull.batch if pull.batch.num_rows else None
        return Chunk(
            pull.status,
            batch,
            pull.next_offset,
            pull.min_offset,
            pull.max_offset,
            pull.damaged,
            pull.epoch,
        )


def held_in(queue: QueueBounds) -> Bounds:
    """Returns what a broker says of a queue as a source compares it."""
    epochs = tuple(EpochOffset(*at) for at in queue.epochs)
    return Bounds(queue.min_offset, queue.confirmed_offset, epochs)


def shared_client(endpoint: str, ca_file: str | None) -> Client:
    """Returns this process's client of an endpoint; threads may share it.

    Args:
        endpoint: As :class:`Client`'s.
        ca_file: The same.
    """
    key = (endpoint, ca_file)
    if key not in _clients:
        _clients[key] = Client(endpoint, timeout_s=60.0, retries=4, ca_file=ca_file)
    return _clients[key]


def http_reader(endpoint: str, ca_file: str | None, broker_name: str = "") -> HttpReader:
    """Returns this process's reader of an endpoint, or of one of the brokers behind it."""
    key = (endpoint, ca_file, broker_name)
    if key not in _readers:
        client = shared_client(endpoint, ca_file)
        _readers[key] = HttpReader(client.broker(broker_name) if broker_name else client)
    return _readers[key]
