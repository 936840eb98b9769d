"""The sender of a write task: each of its chunks is a request that is sent until the broker has it.

Owns the idempotence keys, the halving of a chunk that is too large for the broker, and a task's result.

Invariants: a chunk counts as sent only when the broker answered that all its rows are stored as safely as
its policy asks; whatever happened before that, the same key is sent again, and the broker stores a key
once. Of several brokers a chunk always goes to the same one, unless the option says that another will do;
rows with a sharding key of an ordered topic go where its list says, and nowhere else.

Processes: executors; a task has a sender and a client of its own.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from lakemq.client import BatchResult, Client
from lakemq.client.errors import may_pass
from store_native.errors import InternalError, LakeMQError, Unavailable
from store_native.order_conf import OrderConf
from store_native.sharding import in_order
from structured_streaming.offsets import illegal
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import retry_until
from structured_streaming.sink.chunks import RowChunk, TopicChunks, by_broker, halves, has_sharding_keys

ELSEWHERE_S = 5.0
"""How long a broker that is away is waited for where others will do."""
_LONGEST_TOPIC_IN_KEY = 100


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What one task sent; pickled to the driver.

    Attributes:
        rows: Rows sent.
        duplicate_rows: How many of them the broker had from an earlier attempt.
    """

    rows: int
    duplicate_rows: int


def send_all(
    options: WriteOptions, key_prefix: str, batches: Iterator[pa.RecordBatch], client: Client | None = None
) -> TaskResult:
    """Sends the rows of one task.

    Args:
        options: The sink's options.
        key_prefix: ``spark/<name or query id>/<batch id>/<partition>``: the same for every attempt.
        batches: The task's rows.
        client: Another client than one for ``options.endpoint``.

    Raises:
        LakeMQError: The broker refuses a row (the text names it), or was away for longer than
            retryTimeoutMs. Spark then runs the task again; what was sent is not stored twice.
    """
    rows = duplicates = 0
    with client or client_of(options) as open_client:
        to = Destination(open_client, options)
        for chunk in TopicChunks(options.topic, options.rows_per_request).cut(batches):
            for part, result in to.send(chunk, key_prefix):
                rows += part.rows.num_rows
                duplicates += part.rows.num_rows if result.duplicate else 0
    return TaskResult(rows, duplicates)


def client_of(options: WriteOptions) -> Client:
    """A client for what the options name; its caller closes it."""
    # Where the brokers are not fixed, a name server must not spread what a repeat would spread otherwise.
    routed = bool(options.brokers)
    return Client(
        options.endpoint,
        timeout_s=60.0,
        retries=0,
        ca_file=options.ca_file,
        compression=options.compression,
        routed=routed,
    )


@dataclass(frozen=True)
class PartOfChunk:
    """Rows of a chunk that go to one broker.

    Attributes:
        broker: Its name; None where there is one broker.
        rows: The rows.
        conf: The list by which they go there, where their topic is ordered.
    """

    broker: str | None
    rows: RowChunk
    conf: OrderConf | None = None


class Destination:
    """Where the chunks of a task go: the broker, or one of several by what the chunk is.

    Args:
        client: The broker, or the cluster.
        options: The sink's options.
    """

    def __init__(self, client: Client, options: WriteOptions) -> None:
        self._client = client
        self._brokers = options.brokers
        self._elsewhere = options.elsewhere
        self._retry_timeout_s = options.retry_timeout_ms / 1000

    def send(self, chunk: RowChunk, key_prefix: str) -> Iterator[tuple[RowChunk, BatchResult]]:
        """Sends a chunk's rows, to the same brokers whenever the task runs again."""
        for part in self.parts(chunk, key_prefix):
            if part.broker is None:
                yield from _send_parts(self._client, part.rows, key_prefix, self._retry_timeout_s)
            elif part.conf is None:
                yield from self._send_to(part.broker, part.rows, key_prefix)
            else:
                yield from self._send_in_order(part.broker, part.rows, key_prefix, part.conf)

    def parts(self, chunk: RowChunk, key_prefix: str) -> Iterator[PartOfChunk]:
        """Cuts a chunk by where its rows go: the same way whenever the task runs again.

        Raises:
            LakeMQError: Where keys of an ordered topic go is not known, or not a broker of this sink's.
        """
        if not self._brokers:
            yield PartOfChunk(None, chunk)
            return
        at = zlib.crc32(f"{key_prefix}/{chunk.topic}/{chunk.sequence}".encode()) % len(self._brokers)
        conf = self._order_conf(chunk)
        order = self._brokers if conf is None else in_order(conf.write_queue_nums)
        for name, part in by_broker(chunk, self._brokers, order, self._brokers[at]):
            yield PartOfChunk(name, part, conf)

    def send_whole(self, part: PartOfChunk, rows: RowChunk, key_prefix: str) -> BatchResult:
        """Sends rows of a part as one request, which is taken whole or not at all.

        Raises:
            LakeMQError: As :func:`send_all`; also where the broker takes no request of its size. Unavailable
                where the part's list is no longer its topic's: by the newer one rows go elsewhere.
        """
        version = None if part.conf is None else part.conf.version
        key = key_of(key_prefix, rows)
        broker = self._client if part.broker is None else self._named(part.broker)
        try:
            return _send(broker, rows, key, self._retry_timeout_s, version)
        except LakeMQError as error:
            if part.conf is None or not self._client.cluster_routes.learned(rows.topic, error, part.conf):
                raise
            raise Unavailable("SERVICE_NOT_AVAILABLE", error.detail) from error

    def _named(self, name: str) -> Client:
        # A name server that is away is waited for as a broker is.
        return retry_until(lambda: self._client.broker(name), self._retry_timeout_s)

    def _order_conf(self, chunk: RowChunk) -> OrderConf | None:
        """The list that says where the keys of a chunk go; None: they have none, or are in no order."""
        if not has_sharding_keys(chunk):
            return None
        conf = retry_until(lambda: self._client.order_conf(chunk.topic), self._retry_timeout_s)
        unknown = () if conf is None else sorted(conf.write_queue_nums.keys() - set(self._brokers))
        if unknown:
            raise illegal(
                f"topic {chunk.topic} is ordered over {conf}, and this sink does not send to "
                f"{', '.join(unknown)}: name all brokers of the list in the option brokers",
                option="brokers",
            )
        return conf

    def _send_in_order(
        self, name: str, chunk: RowChunk, key_prefix: str, conf: OrderConf
    ) -> Iterator[tuple[RowChunk, BatchResult]]:
        """Sends rows to the broker that the list gives them to, and to no other while that is away."""
        broker = self._named(name)

        def send(part: RowChunk) -> Iterator[tuple[RowChunk, BatchResult]]:
            try:
                yield part, _send(broker, part, key_of(key_prefix, part), self._retry_timeout_s, conf.version)
            except LakeMQError as error:
                if not self._client.cluster_routes.learned(part.topic, error, conf):
                    raise
                # Nothing of it was stored: by the newer list it is another broker's, or several's.
                yield from self.send(part, key_prefix)

        yield from _in_parts(send, chunk)

    def _send_to(self, name: str, chunk: RowChunk, key_prefix: str) -> Iterator[tuple[RowChunk, BatchResult]]:
        if not self._elsewhere:
            yield from _send_parts(self._named(name), chunk, key_prefix, self._retry_timeout_s)
            return
        first = self._brokers.index(name)

        def once() -> list[tuple[RowChunk, BatchResult]]:
            failed: LakeMQError | None = None
            for other in (*self._brokers[first:], *self._brokers[:first]):
                try:
                    return list(_send_parts(self._client.broker(other), chunk, key_prefix, ELSEWHERE_S))
                except LakeMQError as error:
                    if not may_pass(error):
                        raise
                    failed = error
            assert failed is not None, "there is a broker"
            raise failed

        yield from retry_until(once, self._retry_timeout_s)


def _send_parts(
    client: Client, chunk: RowChunk, key_prefix: str, retry_timeout_s: float
) -> Iterator[tuple[RowChunk, BatchResult]]:
    def send(part: RowChunk) -> Iterator[tuple[RowChunk, BatchResult]]:
        yield part, _send(client, part, key_of(key_prefix, part), retry_timeout_s)

    yield from _in_parts(send, chunk)


def _in_parts(
    send: Callable[[RowChunk], Iterator[tuple[RowChunk, BatchResult]]], chunk: RowChunk
) -> Iterator[tuple[RowChunk, BatchResult]]:
    """Sends a chunk, in halves when the broker takes no request of its size (its limit is a setting).

    The halves are the same whenever the task runs again, as long as the broker's limit is.
    """
    try:
        yield from send(chunk)
    except LakeMQError as error:
        if error.code != "REQUEST_TOO_LARGE" or chunk.rows.num_rows <= 1:
            raise
        for half in halves(chunk):
            yield from _in_parts(send, half)


def key_of(prefix: str, chunk: RowChunk) -> str:
    """Returns the Idempotency-Key of a chunk; a long topic is shortened to a hash, keys have a limit."""
    topic = chunk.topic
    if len(topic) > _LONGEST_TOPIC_IN_KEY:
        topic = hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()
    return f"{prefix}/{topic}/{chunk.sequence}{chunk.part}/{chunk.digest}"


def _send(
    client: Client, chunk: RowChunk, key: str, retry_timeout_s: float, order_version: int | None = None
) -> BatchResult:
    def once() -> BatchResult:
        result = client.send_arrow(chunk.topic, chunk.rows, idempotency_key=key, order_version=order_version)
        if result.status != "SEND_OK":
            # Stored, but not as safe as asked: the checkpoint must not count on it. Asking again waits again.
            raise Unavailable("SYSTEM_BUSY", f"the broker stored it, {result.status}")
        return result

    result = retry_until(once, retry_timeout_s)
    if result.count != chunk.rows.num_rows:
        raise InternalError(
            "SYSTEM_ERROR",
            f"sent {chunk.rows.num_rows} rows under the key {key}, the broker has {result.count}",
        )
    return result
