"""The producer: sends at once, or gathers messages for a moment and sends them together.

Owns what a program calls. What was put and has not ended is in send_queue.py, the threads that send it in
senders.py, what a broker's answer makes of it in batch_sender.py, and where it goes in lanes.py.

Invariants: messages of one topic are stored in the order of ``send_later`` (those of one sharding key, where
there are several brokers), but for what ended as OutcomeUnknown, which may be stored later; every batch
carries an Idempotency-Key, so a repeat after a lost answer stores nothing twice; a message the broker refuses
fails alone, not its neighbours; every future ends, at ``close()`` at the latest; a broker that does not
answer costs no call more than the time it was given; a producer that nobody has any more sends what it was
given, and leaves no thread.

Threads: any may send; threads of the producer's own send what was gathered, one to one broker, and up to
MOST_SENDERS where there are several, so that a broker that is away does not hold up the lanes of others. They
hold the queue of what waits, and not the producer.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self
from weakref import WeakMethod

from lakemq.batch_sender import SendTimes
from lakemq.client import Client, Message, SendResult
from lakemq.client.message import Body, message_of
from lakemq.lanes import Lanes, QueueSelector
from lakemq.pending_messages import PendingMessage
from lakemq.producer_numbers import BATCH_BYTES, LINGER_MS, MAX_PENDING_BYTES, check_numbers, check_timeout
from lakemq.send_queue import SendQueue, closed, new_key
from lakemq.senders import MOST_SENDERS, Senders
from store_native.errors import InvalidRequest

__all__ = ["MOST_SENDERS", "Producer"]


class Producer:
    """Sends messages to a broker, or to the brokers of a cluster; safe to share between threads.

    >>> with Producer("http://127.0.0.1:8090", "orders") as producer:
    ...     producer.send({"id": 17}, tags="created", keys=["17"])     # stored when it returns
    ...     future = producer.send_later({"id": 18})                   # stored when future.result() is

    Args:
        endpoint: As for :class:`~lakemq.client.Client`, or a client to share.
        topic: Where messages go that name no topic of their own.
        linger_ms: How long send_later waits for company.
        batch_bytes: A batch leaves without waiting when it has grown to this; it shrinks where the broker
            takes less in one request.
        max_pending_bytes: send_later blocks while so much is waiting to be sent.
        timeout_s: How long one send may take in all, its repeats included.
        retry_until: A send is repeated until so many seconds after its begin, under the same
            Idempotency-Key; one attempt then takes at most ``timeout_s``. None: see ``timeout_s``.
        compression: As :class:`~lakemq.client.Client`'s; a client to share has its own.
        clock: Monotonic seconds; given in tests.
        threads: What there is of locks and threads; given in tests.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, an endpoint or a number without sense, no such compression, or one
            beside a client to share.

    A message put with send_later fails when a send had to be given up and it had waited itself for
    longer than one send may take: behind a dead broker a full buffer fails together, not in turn. Of several
    brokers that is the messages of this one alone; those of others go on beside it, on up to MOST_SENDERS
    threads.

    A program that ends without close() sends what was put all the same, and says on the logger
    ``lakemq.producer`` what could not be. A producer that is dropped without close() sends it too, then ends
    its threads, with a ResourceWarning.

    A process that is forked has connections and a sender of its own. What was put before the fork its parent
    sends; the futures that it has of those never end there. One that ``multiprocessing`` started calls no
    exit functions, so it has to close the producer.
    """

    def __init__(
        self,
        endpoint: str | Client | None = None,
        topic: str | None = None,
        *,
        linger_ms: float = LINGER_MS,
        batch_bytes: int = BATCH_BYTES,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        timeout_s: float = 3.0,
        retry_until: float | None = None,
        compression: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        threads: Any = threading,
    ) -> None:
        check_numbers(linger_ms, batch_bytes, max_pending_bytes, retry_until)
        self._owns_client = not isinstance(endpoint, Client)
        if isinstance(endpoint, Client):
            if compression is not None:
                raise InvalidRequest("ARGUMENT_ILLEGAL", "compression: give it to the client that is shared")
            self._client = endpoint
        else:
            chosen = "none" if compression is None else compression
            self._client = Client(endpoint, timeout_s=timeout_s, compression=chosen)
        self._lanes = Lanes(self._client)
        self._topic = topic
        self._clock = clock
        self._retry_until = retry_until
        self._send_timeout_s = self._client.call_timeout_s if retry_until is None else retry_until
        self._queue = SendQueue(
            self._lanes,
            linger_s=linger_ms / 1000,
            batch_bytes=batch_bytes,
            max_pending_bytes=max_pending_bytes,
            clock=clock,
            threads=threads,
        )
        repeats = retry_until is not None or self._client.repeats_until_time
        self._senders = Senders(
            self._queue,
            self._client,
            self._lanes,
            SendTimes(self._send_timeout_s, repeats, clock),
            threads=threads,
            close_producer=WeakMethod(self.close),
        )

    @property
    def send_timeout_s(self) -> float:
        """How long one send may take in all, that does not say so itself."""
        return self._send_timeout_s

    def send(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        idempotency_key: str | None = None,
        retry_until: float | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> SendResult:
        """Sends one message now and returns where it is stored.

        Args:
            body: The body, or a whole :class:`Message`.
            topic: Another topic than the producer's own.
            idempotency_key: See :meth:`lakemq.client.Client.send`; None makes one, so that a send
                whose answer was lost is repeated safely.
            retry_until: Seconds from now; another total than the producer's.
            select_queue: Chooses the queue, of all brokers that hold the topic; the message goes to no
                other broker. ``queue_id`` in its place is that of the broker whose turn it is; both together
                are refused.
            **fields: tags, keys, properties ... of :class:`Message`.

        Raises:
            OutcomeUnknown: No answer came in time; ``error.idempotency_key`` given to another send
                of the same message makes that one safe.
            Closed: The producer was closed.
            LakeMQError: As :meth:`lakemq.client.Client.send`.
        """
        if self._queue.is_closed:
            raise closed()
        chosen, message = self._topic_of(topic), message_of(body, fields)
        message, broker_name = self._lanes.selected(chosen, message, select_queue)
        return self._lanes.client_to(broker_name).send_message(
            chosen,
            message,
            idempotency_key=idempotency_key or new_key(),
            retry_until=self._retry_until if retry_until is None else retry_until,
            in_turn=idempotency_key is None,
        )

    def send_one_way(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> None:
        """Sends one message now, and returns once a broker has it in its log, before any flush or slave does.

        It is not repeated where it may be stored already; otherwise as :meth:`send`.

        Raises:
            OutcomeUnknown: No answer came; it may be stored.
            Closed: The producer was closed.
            LakeMQError: As :meth:`lakemq.client.Client.send_one_way`.
        """
        if self._queue.is_closed:
            raise closed()
        chosen = self._topic_of(topic)
        message, broker_name = self._lanes.selected(chosen, message_of(body, fields), select_queue)
        self._lanes.client_to(broker_name).send_one_way(chosen, message)

    def send_later(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> Future[SendResult]:
        """Puts one message into the next batch and returns at once.

        Blocks only while ``max_pending_bytes`` are waiting, and with ``select_queue`` while it is asked which
        queues there are. The future's result or exception is what :meth:`send` would have returned or raised.

        A future's callback runs on a thread that sends: what it does holds up what waits to be sent. It may
        put further messages, and never waits for room; it must not wait for a future of this producer.

        Raises:
            Unavailable: SYSTEM_BUSY, ``max_pending_bytes`` are waiting and a future's callback called; the
                message was not put.
            Closed: The producer was closed.
        """
        chosen = self._topic_of(topic)
        message, broker_name = self._lanes.selected(chosen, message_of(body, fields), select_queue)
        line = message.to_line()
        lane = self._lanes.lane_of(chosen, message, broker_name)
        since = self._clock()
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()  # a message on its way cannot be called back
        key = message.sharding_key
        self._senders.put(PendingMessage(chosen, lane, broker_name, key, line, 0, since, future))
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Sends what is waiting and returns when each of its futures has ended.

        Args:
            timeout: Seconds; None waits as long as the sends may take.

        Raises:
            TimeoutError: The time was over first; the messages are still on their way.
            InvalidRequest: ARGUMENT_ILLEGAL, a future's callback called: it would wait for what only its own
                thread sends; or the timeout is no time.
        """
        check_timeout(timeout)
        self._senders.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes, then ends the sender thread; further sends raise Closed.

        A future's callback that calls it does not wait: the thread it runs on ends what waits.

        Args:
            timeout: Seconds; None waits as long as the sends may take. When the time is over, the
                futures of messages not sent yet fail with Closed (nothing of them is stored), and
                those of the batch under way with OutcomeUnknown.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the timeout is no time; the producer is as it was.
        """
        check_timeout(timeout)
        self._senders.close(timeout, self._on_end())

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._queue.is_closed

    def _on_end(self) -> Callable[[], None] | None:
        """What is left to do when nothing is sent any more; it does not hold the producer."""
        return self._client.close if self._owns_client else None

    def __del__(self) -> None:
        # Nobody can call it any more. One that was refused when it was made has no senders.
        senders: Senders | None = getattr(self, "_senders", None)
        if senders is not None and not self.is_closed:
            unclosed = f"unclosed {self!r}"
            if senders.drop(unclosed, self._on_end()):
                warnings.warn(unclosed, ResourceWarning, stacklevel=2, source=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _topic_of(self, topic: str | None) -> str:
        chosen = topic or self._topic
        if chosen is None:
            raise InvalidRequest("TOPIC_ILLEGAL", "no topic: Producer(endpoint, topic) or send(topic=...)")
        return chosen
