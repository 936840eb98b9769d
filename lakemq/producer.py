"""The producer: sends at once, or gathers messages for a moment and sends them together.

Owns the sender threads; what lingers is in pending_messages.py, and where it goes in lanes.py.

Invariants: messages of one topic are stored in the order of ``send_later`` (those of one sharding key, where
there are several brokers), but for what ended as OutcomeUnknown, which may be stored later; every batch
carries an Idempotency-Key, so a repeat after a lost answer stores nothing twice; a message the broker refuses
fails alone, not its neighbours; every future ends, at ``close()`` at the latest; a broker that does not
answer costs no call more than the time it was given; a producer that nobody has any more sends what it was
given, and leaves no thread.

Threads: any may send; threads of the producer's own send what was gathered, one to one broker, and up to
MOST_SENDERS where there are several, so that a broker that is away does not hold up the lanes of others. They
hold the producer only while it has something to send.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from weakref import ref

from lakemq.client import (
    BatchResult,
    Client,
    LakeMQError,
    Message,
    OutcomeUnknown,
    SendResult,
)
from lakemq.client.broker_transport import LOOK_AGAIN_S
from lakemq.client.forks import tell_in_child
from lakemq.client.message import Body
from lakemq.lanes import Lanes, QueueSelector
from lakemq.pending_messages import PendingMessage, PendingMessages
from lakemq.producer_numbers import BATCH_BYTES, LINGER_MS, MAX_PENDING_BYTES, check_numbers, check_timeout
from lakemq.unsent_messages import say_unsent
from store_native.errors import Closed, InvalidRequest, Unavailable

_log = logging.getLogger("lakemq.producer")

MOST_SENDERS = 4
"""Batches on their way at a time, to several brokers."""
_LEAST_S = 0.001


@dataclass(slots=True, eq=False)
class _Batch:
    """What goes out in one request, under one key however often it is repeated."""

    items: list[PendingMessage]
    key: str = field(default_factory=lambda: _new_key())


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
        clock: Monotonic seconds; given in tests.
        threads: What there is of locks and threads; given in tests.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, an endpoint or a number without sense.

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
        clock: Callable[[], float] = time.monotonic,
        threads: Any = threading,
    ) -> None:
        check_numbers(linger_ms, batch_bytes, max_pending_bytes, retry_until)
        self._owns_client = not isinstance(endpoint, Client)
        self._client = endpoint if isinstance(endpoint, Client) else Client(endpoint, timeout_s=timeout_s)
        self._lanes = Lanes(self._client)
        self._retry_until = retry_until
        self._repeats = retry_until is not None or self._client.repeats_until_time
        self._send_timeout_s = self._client.call_timeout_s if retry_until is None else retry_until
        self._topic = topic
        self._linger_s = linger_ms / 1000
        self._max_pending_bytes = max_pending_bytes
        self._clock = clock
        self._threads = threads
        self._batch_bytes = batch_bytes
        self._closed = False
        self._at_exit = partial(self._end_with_program, ref(self))
        self._begin()
        tell_in_child(self._begin)

    def _begin(self) -> None:
        """Begins with nothing put and no sender; so does a forked process: its parent sends what it put."""
        self._changed: threading.Condition = self._threads.Condition()
        self._pending = PendingMessages(self._batch_bytes)
        self._held: list[Producer] = []  # this one, while something waits: senders hold no more of it
        self._put = 0  # how many were put: the number of the next
        self._open: OrderedDict[int, PendingMessage] = OrderedDict()  # those that have not ended, by number
        self._wanted = 0  # what has a lower number does not wait for the linger
        self._in_flight: list[_Batch] = []
        self._senders: list[threading.Thread] = []
        self._abandoning: list[threading.Thread] = []  # threads in a close() that ends the futures itself
        self._running = 0  # of the senders

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
        if self._closed:
            raise _closed()
        chosen, message = self._topic_of(topic), _message(body, fields)
        message, broker_name = self._lanes.selected(chosen, message, select_queue)
        return self._lanes.client_to(broker_name).send_message(
            chosen,
            message,
            idempotency_key=idempotency_key or _new_key(),
            retry_until=self._retry_until if retry_until is None else retry_until,
            in_turn=idempotency_key is None,
        )

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
        message, broker_name = self._lanes.selected(chosen, _message(body, fields), select_queue)
        line = message.to_line()
        lane = self._lanes.lane_of(chosen, message, broker_name)
        since = self._clock()
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()  # a message on its way cannot be called back
        with self._changed:
            if not (self._closed or self._fits(len(line))) and self._is_callback():
                detail = f"{self._pending.size} bytes wait to be sent, and a callback waits for no room"
                raise Unavailable("SYSTEM_BUSY", detail, sent=False)
            self._changed.wait_for(lambda: self._closed or self._fits(len(line)))
            if self._closed:
                raise _closed()
            self._start()
            key = message.sharding_key
            put = PendingMessage(chosen, lane, broker_name, key, line, self._put, since, future)
            self._pending.put(put)
            self._open[self._put] = put
            self._held[:] = [self]
            self._put += 1
            self._changed.notify_all()
            self._start_another()
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
        with self._changed:
            if self._is_callback():
                detail = "flush() in a future's callback would wait for the thread that it runs on"
                raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
            put = self._put
            self._wanted = put
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: next(iter(self._open), put) >= put, timeout):
                left = sum(number < put for number in self._open)
                raise TimeoutError(f"{left} messages are still on their way after {timeout} s")

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
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._is_callback():
                return
        until = None if timeout is None else self._clock() + timeout
        # One that sends may start another; it is there before the first has ended.
        while (sender := next((one for one in self._senders if one.is_alive()), None)) is not None:
            sender.join(None if until is None else max(0.0, until - self._clock()))
            if sender.is_alive():
                self._abandon(timeout)
                break
        self._release()

    @classmethod
    def _end_with_program(cls, reference: ref[Self]) -> None:
        if (producer := reference()) is not None:
            cls._close_and_say(producer)

    def _close_and_say(self) -> None:
        """Closes it as the program ends, and says what could not be sent."""
        with self._changed:
            left = list(self._open.values())
        try:
            self.close()
        finally:
            say_unsent(left, self._client.endpoint)

    def __del__(self) -> None:
        # Nobody can call it any more, and no sender holds it: it has nothing to send.
        if not getattr(self, "_closed", True) and self._senders:
            try:
                warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            finally:
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _topic_of(self, topic: str | None) -> str:
        chosen = topic or self._topic
        if chosen is None:
            raise InvalidRequest("TOPIC_ILLEGAL", "no topic: Producer(endpoint, topic) or send(topic=...)")
        return chosen

    def _is_callback(self) -> bool:
        """Whether a future's callback asks: the calling thread is one that ends futures."""
        return self._threads.current_thread() in (*self._senders, *self._abandoning)

    def _fits(self, size: int) -> bool:
        return not self._pending or self._pending.size + size <= self._max_pending_bytes

    def _start(self) -> None:
        if not self._senders:
            self._start_sender()
            # A program that ends without close() still sends what it was promised.
            atexit.register(self._at_exit)

    def _start_sender(self) -> None:
        run = partial(self._run, ref(self), self._held, self._changed)
        sender = self._threads.Thread(target=run, name="lakemq-producer", daemon=True)
        self._running += 1
        try:
            sender.start()
        except RuntimeError:  # the process may have no more threads
            self._running -= 1
            raise
        self._senders.append(sender)

    def _start_another(self) -> None:
        """Starts a sender where something may go, and nobody is there to send it."""
        is_idle = self._running > len(self._in_flight)
        if self._client.is_routed and not is_idle and len(self._senders) < MOST_SENDERS:
            self._put_apart()
            if self._in_flight and self._pending.oldest() is not None:
                try:
                    self._start_sender()
                except RuntimeError as error:
                    _log.warning("batches go on %s threads, another cannot be had: %s", self._running, error)

    def _put_apart(self) -> None:
        """Puts what was put without a lane into its own, where somebody has said since which that is."""
        first = self._pending.first_without_lane()
        if first is not None and self._lanes.known(first) is not None:
            self._pending.put_apart(self._lanes.known)

    def _ask_for_lane(self, first: PendingMessage) -> None:
        """Asks whose a message is, where nobody has said so: what waits behind it may be of other brokers.

        It is not sent before that is known, for only then the others can go beside it.

        Raises:
            LakeMQError: Nobody says; where sends are repeated until a time, until it is over.
        """
        if first.lane is not None or first.sharding_key is None or not self._client.is_routed:
            return
        until = self._clock() + self._send_timeout_s
        while True:
            try:
                self._client.lane(first.topic, first.sharding_key)
                break
            except Unavailable:
                if not self._repeats or self._clock() + LOOK_AGAIN_S >= until:
                    raise
                with self._changed:
                    if self._changed.wait_for(first.future.done, LOOK_AGAIN_S):
                        raise  # a close() gave up
        with self._changed:
            self._changed.notify_all()
            self._start_another()

    @classmethod
    def _run(cls, reference: ref[Self], held: list[Producer], changed: threading.Condition) -> None:
        """Sends until the producer is closed, or nobody has it any more."""
        while (producer := reference()) is not None:
            with changed:
                batch = cls._next_batch(producer)
                if batch is None and not cls._is_over(reference):
                    held.clear()
                    del producer  # one that nobody else has goes here, and is over by that
                    if not cls._is_over(reference):
                        changed.wait()
                    continue
            if batch is None:
                cls._sender_ended(producer)
                return
            cls._send_and_note(producer, batch)
            del batch  # a callback in it may have the producer

    @classmethod
    def _is_over(cls, reference: ref[Self]) -> bool:
        producer = reference()
        return producer is None or producer.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._closed

    def _send_and_note(self, batch: _Batch) -> None:
        items, lane = list(batch.items), batch.items[0].lane
        try:
            self._send_batch(batch)
        finally:
            with self._changed:
                self._in_flight.remove(batch)
                self._pending.ended(lane, items)
            self._note_ended([item for item in items if item.future.done()])  # others were put back

    def _sender_ended(self) -> None:
        with self._changed:
            self._running -= 1
            is_last = not self._running
        if is_last:
            self._release()

    def _release(self) -> None:
        atexit.unregister(self._at_exit)
        if self._owns_client:
            self._client.close()

    def _next_batch(self) -> _Batch | None:
        """Waits, under the caller's lock, until a batch is due and takes it; None: nothing is left."""
        while (first := self._due()) is None:
            if not self._pending:
                return None
            self._changed.wait(self._until_due())
        batch = _Batch(self._pending.take_batch(first))
        self._in_flight.append(batch)
        self._changed.notify_all()
        self._start_another()
        return batch

    def _due(self) -> PendingMessage | None:
        """The first message of what is to go now: it has waited enough, or its lane is full."""
        self._put_apart()
        oldest = self._pending.oldest()
        if oldest is None:
            return None
        at_once = self._closed or oldest.number < self._wanted
        if at_once or self._clock() - oldest.since >= self._linger_s:
            return oldest
        return self._pending.first_of_full_lane()

    def _until_due(self) -> float | None:
        oldest = self._pending.oldest()
        return None if oldest is None else max(0.0, oldest.since + self._linger_s - self._clock())

    def _send_batch(self, batch: _Batch) -> None:
        """Sends a batch; one the broker names as bad is taken out, and the rest sent again."""
        while batch.items:
            try:
                results = self._post(batch).results
                if len(results) != len(batch.items):
                    what = f"{len(batch.items)} messages sent, {len(results)} results"
                    raise OutcomeUnknown.of(what, batch.key)
            except LakeMQError as error:
                index = error.context.get("index")
                if isinstance(error, InvalidRequest) and isinstance(index, int) and index < len(batch.items):
                    _fail([batch.items.pop(index)], error)
                    batch.key = _new_key()  # nothing was stored under the old one
                    continue
                if (
                    isinstance(error, InvalidRequest)
                    and error.context.get("brokers")
                    and len(batch.items) > 1
                ):
                    # Nobody had said when the messages were put, or the routes have changed since.
                    self._send_apart(batch)
                    return
                if error.code == "REQUEST_TOO_LARGE" and len(batch.items) > 1:
                    self._put_half_back(batch)
                    continue
                _fail(batch.items, error)
                if isinstance(error, Unavailable | OutcomeUnknown):
                    self._give_up_waiting(error, self._lane_of_failed(batch.items[0]))
                return
            except Exception as error:  # noqa: BLE001 - goes to the caller through each future
                _fail(batch.items, error)
                return
            for item, result in zip(batch.items, results, strict=True):
                with _callbacks_contained():
                    item.future.set_result(result)
            return

    def _send_apart(self, batch: _Batch) -> None:
        """Puts what is of several lanes back into them: a broker that is away holds up its own only.

        What waits behind it was put by the same that was known then, and goes to where it belongs now.
        """
        apart = self._lanes.apart(batch.items)
        is_of_one = len({message.lane for message in batch.items}) == 1
        with self._changed:
            self._pending.lay_out(self._lanes.known)
            if not is_of_one:
                self._pending.put_back(batch.items)
                batch.items = []
        if is_of_one:
            for items in apart:
                self._send_batch(_Batch(items))

    def _put_half_back(self, batch: _Batch) -> None:
        """Makes less of a batch that the broker finds too large, and of those to come."""
        middle = len(batch.items) // 2
        with self._changed:
            self._pending.take_less(batch.items)
            self._pending.put_back(batch.items[middle:])
            batch.items = batch.items[:middle]
            batch.key = _new_key()  # nothing was stored under the old one

    def _post(self, batch: _Batch) -> BatchResult:
        first, began = batch.items[0], self._clock()
        self._ask_for_lane(first)
        left_s = max(_LEAST_S, self._send_timeout_s - (self._clock() - began))
        return self._lanes.client_to(first.broker_name).send_ndjson(
            first.topic,
            b"".join(item.line for item in batch.items),
            idempotency_key=batch.key,
            full_results=True,
            retry_until=left_s if self._repeats else None,
            in_turn=True,
        )

    def _lane_of_failed(self, first: PendingMessage) -> str | None:
        """Which lane a batch was of that its broker did not take; None: it stands for all."""
        if first.lane is not None or first.sharding_key is None:
            return first.lane
        # Nobody had said when it was put. Who waits behind it may be of brokers that answer.
        with self._changed:
            self._pending.put_apart(self._lanes.known)
        return self._lanes.known(first)

    def _give_up_waiting(self, error: LakeMQError, lane: str | None) -> None:
        """Fails what has waited longer than one send may take, or all of it when nobody sends more.

        Where a key or a queue has one broker, that broker's only: others may answer.
        """
        with self._changed:
            before = self._clock() - self._send_timeout_s
            late = self._pending.take_while(
                lambda message: (
                    (lane is None or message.lane == lane) and (self._closed or message.since <= before)
                )
            )
        detail = f"not sent, as one before it failed: {error}"
        _fail(late, Unavailable("SERVICE_NOT_AVAILABLE", detail, sent=False))
        self._note_ended(late)

    def _abandon(self, timeout: float | None) -> None:
        """Ends every future that is open; the sender thread finds nothing more to do."""
        with self._changed:
            batches, unsent = list(self._in_flight), self._pending.take_while(lambda message: True)
            self._abandoning.append(self._threads.current_thread())
        for batch in batches:
            what = f"the producer was closed while a batch had no answer yet after {timeout} s"
            _fail(list(batch.items), OutcomeUnknown.of(what, batch.key))
        _fail(unsent, Closed("PRODUCER_CLOSED", f"not sent: the producer was closed within {timeout} s"))
        self._note_ended(unsent)
        with self._changed:
            self._abandoning.remove(self._threads.current_thread())

    def _note_ended(self, items: Sequence[PendingMessage]) -> None:
        with self._changed:
            for item in items:
                self._open.pop(item.number, None)
            self._changed.notify_all()


def _fail(items: Sequence[PendingMessage], error: Exception) -> None:
    for item in items:
        with _callbacks_contained():
            item.future.set_exception(error)


@contextlib.contextmanager
def _callbacks_contained() -> Iterator[None]:
    """Around the end of a future: what its callbacks do ends no sender."""
    try:
        yield
    except InvalidStateError:
        pass  # close(timeout) was quicker
    except BaseException as left:
        if isinstance(left, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        _log.error("a callback of a future ended with %r: the producer goes on", left)


def _closed() -> Closed:
    return Closed("PRODUCER_CLOSED", "the producer is closed")


def _new_key() -> str:
    return uuid.uuid4().hex


def _message(body: Body | Message, fields: dict[str, Any]) -> Message:
    if isinstance(body, Message):
        if fields:
            raise TypeError("give fields inside the Message, or a body and fields")
        return body
    return Message(body, **fields)
