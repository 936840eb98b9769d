"""The sender of a write task: each of its chunks is a request that is sent until the broker has it.

Owns the idempotence keys, the halving of a chunk that is too large for the broker, and a task's result.

Invariants: a chunk counts as sent only when the broker answered that all its rows are stored as safely as
its policy asks; whatever happened before that, the same key is sent again, and the broker stores a key
once. Of several brokers a chunk always goes to the same one, unless the option says that another will do.

Processes: executors; a task has a sender and a client of its own.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from lakemq.client import BatchResult, Client
from lakemq.client.errors import may_pass
from store_native.errors import InternalError, LakeMQError, Unavailable
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import retry_until
from structured_streaming.sink.chunks import RowChunk, TopicChunks, by_broker, halves

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
    with client or _client(options) as open_client:
        to = Destination(open_client, options)
        for chunk in TopicChunks(options.topic, options.rows_per_request).cut(batches):
            for part, result in to.send(chunk, key_prefix):
                rows += part.rows.num_rows
                duplicates += part.rows.num_rows if result.duplicate else 0
    return TaskResult(rows, duplicates)


def _client(options: WriteOptions) -> Client:
    # Where the brokers are not fixed, a name server must not spread what a repeat would spread otherwise.
    routed = bool(options.brokers)
    return Client(options.endpoint, timeout_s=60.0, retries=0, ca_file=options.ca_file, routed=routed)


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
        if not self._brokers:
            yield from _send_parts(self._client, chunk, key_prefix, self._retry_timeout_s)
            return
        at = zlib.crc32(f"{key_prefix}/{chunk.topic}/{chunk.sequence}".encode()) % len(self._brokers)
        for name, part in by_broker(chunk, self._brokers, self._brokers[at]):
            yield from self._send_to(name, part, key_prefix)

    def _send_to(self, name: str, chunk: RowChunk, key_prefix: str) -> Iterator[tuple[RowChunk, BatchResult]]:
        if not self._elsewhere:
            # A name server that is away is waited for as a broker is.
            broker = retry_until(lambda: self._client.broker(name), self._retry_timeout_s)
            yield from _send_parts(broker, chunk, key_prefix, self._retry_timeout_s)
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
    """Sends a chunk, in halves when the broker takes no request of its size (its limit is a setting).

    The halves are the same whenever the task runs again, as long as the broker's limit is.
    """
    try:
        result = _send(client, chunk, key_of(key_prefix, chunk), retry_timeout_s)
    except LakeMQError as error:
        if error.code != "REQUEST_TOO_LARGE" or chunk.rows.num_rows <= 1:
            raise
        for half in halves(chunk):
            yield from _send_parts(client, half, key_prefix, retry_timeout_s)
        return
    yield chunk, result


def key_of(prefix: str, chunk: RowChunk) -> str:
    """Returns the Idempotency-Key of a chunk; a long topic is shortened to a hash, keys have a limit."""
    topic = chunk.topic
    if len(topic) > _LONGEST_TOPIC_IN_KEY:
        topic = hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()
    return f"{prefix}/{topic}/{chunk.sequence}{chunk.part}/{chunk.digest}"


def _send(client: Client, chunk: RowChunk, key: str, retry_timeout_s: float) -> BatchResult:
    def once() -> BatchResult:
        result = client.send_arrow(chunk.topic, chunk.rows, idempotency_key=key)
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
