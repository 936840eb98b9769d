"""The producer: sends at once, or gathers messages for a moment and sends them together.

Owns the linger buffer and its one sender thread. What never breaks: messages of one topic are
stored in the order of ``send_later``; every batch carries an Idempotency-Key, so a repeat after a
lost answer stores nothing twice; a message the broker refuses fails alone, not its neighbours; every
future ends, at ``close()`` at the latest. Built on lakemq.client.Client, used by applications.
"""

from __future__ import annotations

import atexit
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self

from lakemq.client import BatchResult, Client, LakeMQError, Message, SendResult
from lakemq.client.message import Body
from store_native.errors import Closed, InvalidRequest

LINGER_MS = 10
BATCH_BYTES = 32 * 1024
MAX_PENDING_BYTES = 100 * 1024 * 1024


@dataclass(slots=True)
class _Pending:
    topic: str
    line: bytes
    since: float
    future: Future[SendResult]


class Producer:
    """Sends messages to one broker; safe to share between threads.

    >>> with Producer("http://127.0.0.1:8090", "orders") as producer:
    ...     producer.send({"id": 17}, tags="created", keys=["17"])     # stored when it returns
    ...     future = producer.send_later({"id": 18})                   # stored when future.result() is

    Args:
        endpoint: As for :class:`~lakemq.client.Client`, or a client to share.
        topic: Where messages go that name no topic of their own.
        linger_ms: How long send_later waits for company.
        batch_bytes: A batch leaves without waiting when it has grown to this.
        max_pending_bytes: send_later blocks while so much is waiting to be sent.
        timeout_s: How long one answer may take.
        clock: Monotonic seconds; given in tests.
    """

    def __init__(
        self,
        endpoint: str | Client | None = None,
        topic: str | None = None,
        *,
        linger_ms: int = LINGER_MS,
        batch_bytes: int = BATCH_BYTES,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        timeout_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owns_client = not isinstance(endpoint, Client)
        self._client = endpoint if isinstance(endpoint, Client) else Client(endpoint, timeout_s=timeout_s)
        self._topic = topic
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._max_pending_bytes = max_pending_bytes
        self._clock = clock
        self._changed = threading.Condition()
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._in_flight = 0
        self._flushing = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def send(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> SendResult:
        """Sends one message now and returns where it is stored.

        Args:
            body: The body, or a whole :class:`Message`.
            topic: Another topic than the producer's own.
            idempotency_key: See :meth:`lakemq.client.Client.send`; None makes one, so that a send
                whose answer was lost is repeated safely.
            **fields: tags, keys, properties ... of :class:`Message`.

        Raises:
            LakeMQError: As :meth:`lakemq.client.Client.send`.
        """
        return self._client.send_message(
            self._topic_of(topic), _message(body, fields), idempotency_key=idempotency_key or uuid.uuid4().hex
        )

    def send_later(
        self, body: Body | Message, *, topic: str | None = None, **fields: Any
    ) -> Future[SendResult]:
        """Puts one message into the next batch and returns at once.

        Blocks only while ``max_pending_bytes`` are waiting. The future's result or exception is what
        :meth:`send` would have returned or raised.

        Raises:
            Closed: The producer was closed.
        """
        line = _message(body, fields).to_line()
        item = _Pending(self._topic_of(topic), line, self._clock(), Future())
        item.future.set_running_or_notify_cancel()  # a message on its way cannot be called back
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(len(line)))
            if self._closed:
                raise Closed("PRODUCER_CLOSED", "the producer is closed")
            self._start()
            self._pending.append(item)
            self._pending_bytes += len(line)
            self._changed.notify_all()
        return item.future

    def flush(self) -> None:
        """Sends what is waiting and returns when each of its futures has ended."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._pending and not self._in_flight)
            self._flushing -= 1

    def close(self) -> None:
        """Flushes, then ends the sender thread; further sends raise Closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self.close)
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _topic_of(self, topic: str | None) -> str:
        chosen = topic or self._topic
        if chosen is None:
            raise InvalidRequest("TOPIC_ILLEGAL", "no topic: Producer(endpoint, topic) or send(topic=...)")
        return chosen

    def _has_room(self, size: int) -> bool:
        return not self._pending or self._pending_bytes + size <= self._max_pending_bytes

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lakemq-producer", daemon=True)
            self._thread.start()
            # A program that ends without close() still sends what it was promised.
            atexit.register(self.close)

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._send_batch(batch)
            finally:
                with self._changed:
                    self._in_flight = 0
                    self._changed.notify_all()

    def _next_batch(self) -> list[_Pending]:
        """Waits until a batch is due and takes it; empty means closed and nothing left."""
        with self._changed:
            while not self._due():
                if self._closed and not self._pending:
                    return []
                self._changed.wait(self._until_due())
            batch = [self._take()]
            size = len(batch[0].line)
            while self._pending and self._pending[0].topic == batch[0].topic:
                size += len(self._pending[0].line)
                if size > self._batch_bytes:
                    break
                batch.append(self._take())
            self._in_flight = len(batch)
            self._changed.notify_all()
            return batch

    def _due(self) -> bool:
        if not self._pending:
            return False
        at_once = self._closed or self._flushing > 0 or self._pending_bytes >= self._batch_bytes
        return at_once or self._clock() - self._pending[0].since >= self._linger_s

    def _until_due(self) -> float | None:
        if not self._pending:
            return None
        return max(0.0, self._pending[0].since + self._linger_s - self._clock())

    def _take(self) -> _Pending:
        item = self._pending.popleft()
        self._pending_bytes -= len(item.line)
        return item

    def _send_batch(self, batch: list[_Pending]) -> None:
        """Sends a batch; one the broker names as bad is taken out, and the rest sent again."""
        while batch:
            try:
                answer = self._post(batch)
            except LakeMQError as error:
                index = error.context.get("index")
                if isinstance(error, InvalidRequest) and isinstance(index, int) and index < len(batch):
                    batch.pop(index).future.set_exception(error)
                    continue
                _fail(batch, error)
                return
            except Exception as error:  # noqa: BLE001 - goes to the caller through each future
                _fail(batch, error)
                return
            for item, result in zip(batch, answer.results, strict=True):
                item.future.set_result(result)
            return

    def _post(self, batch: list[_Pending]) -> BatchResult:
        data = b"".join(item.line for item in batch)
        return self._client.send_ndjson(
            batch[0].topic, data, idempotency_key=uuid.uuid4().hex, full_results=True
        )


def _fail(batch: list[_Pending], error: Exception) -> None:
    for item in batch:
        item.future.set_exception(error)


def _message(body: Body | Message, fields: dict[str, Any]) -> Message:
    if isinstance(body, Message):
        if fields:
            raise TypeError("give fields inside the Message, or a body and fields")
        return body
    return Message(body, **fields)
