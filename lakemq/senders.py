"""The threads that send what a producer was given, and their end.

Owns how many there are, and what ends them: the producer is closed, dropped, or left by its program.

Invariants: there is a thread from the first message until the producer's end; further ones only while a batch
is on its way and another may go beside it; after the end there is none, and nothing is open.

Threads: any may call. They hold the queue and never the producer, which is gone when nobody else has it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

from lakemq.batch_sender import BatchSender, SendTimes, fail
from lakemq.client import Client, OutcomeUnknown
from lakemq.client.forks import tell_in_child
from lakemq.lanes import Lanes
from lakemq.pending_messages import PendingMessage
from lakemq.send_queue import Batch, SendQueue
from lakemq.unsent_messages import say_unsent
from store_native.errors import Closed, InvalidRequest

_log = logging.getLogger("lakemq.producer")

MOST_SENDERS = 4
"""Batches on their way at a time, to several brokers."""


class Senders:
    """Sends what is in a queue, on threads of its own.

    Args:
        queue: What is sent.
        client: Knows the brokers.
        lanes: Knows where messages go.
        times: How long a send may take.
        threads: What there is of threads.
        close_producer: Returns what a program that ends calls; None when nobody has the producer any more.
    """

    def __init__(
        self,
        queue: SendQueue,
        client: Client,
        lanes: Lanes,
        times: SendTimes,
        *,
        threads: Any,
        close_producer: Callable[[], Callable[[], None] | None],
    ) -> None:
        self._queue = queue
        self._client = client
        self._lanes = lanes
        self._times = times
        self._threads = threads
        self._close_producer = close_producer
        self._on_end: Callable[[], None] | None = None
        self._unclosed: str | None = None  # what is said in the end of a producer that was dropped
        self._begin()
        tell_in_child(self._begin)

    def _begin(self) -> None:
        """Begins without a thread; so does a forked process."""
        self._senders: list[threading.Thread] = []
        self._abandoning: list[threading.Thread] = []  # threads in a close() that ends the futures itself
        self._running = 0  # of the senders

    def put(self, message: PendingMessage) -> None:
        """Has a message sent; waits while there is no room for it.

        Raises:
            Unavailable: SYSTEM_BUSY, there is none and a future's callback called.
            Closed: The producer was closed.
        """
        with self._queue.changed:
            self._queue.wait_for_room(len(message.line), may_wait=not self._is_callback())
            if not self._senders:
                self._start()
                # A program that ends without close() still sends what it was promised.
                atexit.register(self._end_with_program)
            self._queue.put(message)
            self._start_another()

    def flush(self, timeout: float | None) -> None:
        """As :meth:`lakemq.Producer.flush`."""
        with self._queue.changed:
            if self._is_callback():
                detail = "flush() in a future's callback would wait for the thread that it runs on"
                raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
            self._queue.wait_until_sent(timeout)

    def close(self, timeout: float | None, on_end: Callable[[], None] | None) -> None:
        """Sends what waits, then ends the threads; as :meth:`lakemq.Producer.close`.

        Args:
            timeout: Seconds; None waits as long as the sends take.
            on_end: Called when nothing is sent any more; it may be called twice.
        """
        with self._queue.changed:
            self._on_end = on_end
            self._queue.close()
            if self._is_callback():
                return
        clock = self._times.clock
        until = None if timeout is None else clock() + timeout
        # One that sends may start another; it is there before the first has ended.
        while (sender := next((one for one in self._senders if one.is_alive()), None)) is not None:
            sender.join(None if until is None else max(0.0, until - clock()))
            if sender.is_alive():
                self._abandon(timeout)
                break
        self._release()

    def drop(self, unclosed: str, on_end: Callable[[], None] | None) -> bool:
        """Sends what waits when it is due, then ends the threads: nobody has the producer any more.

        Args:
            unclosed: What is said by a ResourceWarning when all of it was sent.
            on_end: As of :meth:`close`.

        Returns:
            Whether the caller is to say it: there are threads, and nothing is left for them.
        """
        with self._queue.changed:
            if not self._senders:
                return False
            self._on_end = on_end
            is_idle = not self._queue.open_messages()
            self._unclosed = None if is_idle else unclosed
            self._queue.drop()
        return is_idle

    def _end_with_program(self) -> None:
        """Closes as the program ends, and says what could not be sent."""
        left = self._queue.open_messages()
        try:
            close = self._close_producer()
            if close is None:
                self.close(None, self._on_end)
            else:
                close()
        finally:
            say_unsent(left, self._client.endpoint)

    def _abandon(self, timeout: float | None) -> None:
        """Ends every future that is open; the threads find nothing more to do."""
        batches, unsent = self._queue.give_up()
        this = self._threads.current_thread()
        self._abandoning.append(this)
        for batch in batches:
            what = f"the producer was closed while a batch had no answer yet after {timeout} s"
            fail(list(batch.items), OutcomeUnknown.of(what, batch.key))
        fail(unsent, Closed("PRODUCER_CLOSED", f"not sent: the producer was closed within {timeout} s"))
        self._queue.note_ended(unsent)
        self._abandoning.remove(this)

    def _release(self) -> None:
        atexit.unregister(self._end_with_program)
        if self._on_end is not None:
            self._on_end()

    def _is_callback(self) -> bool:
        """Whether a future's callback asks: the calling thread is one that ends futures."""
        return self._threads.current_thread() in (*self._senders, *self._abandoning)

    def _start(self) -> None:
        sender = self._threads.Thread(target=self._run, name="lakemq-producer", daemon=True)
        self._running += 1
        try:
            sender.start()
        except RuntimeError:  # the process may have no more threads
            self._running -= 1
            raise
        self._senders.append(sender)

    def _start_another(self) -> None:
        """Starts a thread, under the lock, where something may go and nobody is there to send it."""
        is_idle = self._running > self._queue.count_under_way
        may_be_more = self._client.is_routed and not is_idle and len(self._senders) < MOST_SENDERS
        if may_be_more and self._queue.has_another():
            try:
                self._start()
            except RuntimeError as error:
                _log.warning("batches go on %s threads, another cannot be had: %s", self._running, error)

    def _run(self) -> None:
        """Sends until the producer is closed or dropped, and nothing is left."""
        sender = BatchSender(self._queue, self._client, self._lanes, self._times, self._start_another)
        while (batch := self._next_batch()) is not None:
            items, lane = list(batch.items), batch.items[0].lane
            try:
                sender.send(batch)
            finally:
                self._queue.ended(batch, lane, items)
                del batch, items  # a callback in them may have the producer
        with self._queue.changed:
            self._running -= 1
            is_last = not self._running
        if is_last:
            self._ended()

    def _next_batch(self) -> Batch | None:
        with self._queue.changed:
            batch = self._queue.next_batch()
            if batch is not None:
                self._start_another()
            return batch

    def _ended(self) -> None:
        self._release()
        if self._unclosed is not None and not self._queue.is_closed:
            warnings.warn(self._unclosed, ResourceWarning, stacklevel=2)
