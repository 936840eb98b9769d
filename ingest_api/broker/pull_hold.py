"""Holds long-polling pulls until their queue gets a message.

Owns who waits for which queue.

Invariants: a pull is woken by the store's dispatcher, not by a timer; a message that arrives between the
read and the wait is seen, because the caller reads again after :meth:`PullHold.wait_for` and before it
waits.
"""

from __future__ import annotations

import asyncio

from ingest_api.broker.store_events import StoreEvents
from store_native import Store

Queue = tuple[str, int]


class PullHold:
    """Wakes pulls.

    Args:
        store: Watches queues for us.
        progress: Says when to ask it.
        loop: The loop the broker runs on.
    """

    def __init__(self, store: Store, progress: StoreEvents, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._progress = progress
        self._loop = loop
        self._waiting: dict[Queue, set[asyncio.Future[None]]] = {}
        self.closed = False
        progress.subscribe(self._moved)

    @property
    def waiting(self) -> int:
        """Pulls held."""
        return sum(len(futures) for futures in self._waiting.values())

    def wait_for(self, queue: Queue) -> asyncio.Future[None]:
        """Registers a wait; read the queue once more before awaiting it, and :meth:`forget` it after."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.closed:
            future.set_result(None)
            return future
        waiters = self._waiting.get(queue)
        if waiters is None:
            self._waiting[queue] = {future}
            self._store.watch(*queue)
        else:
            waiters.add(future)
        if not self._progress.listening:
            self._progress.listen()
        return future

    def forget(self, queue: Queue, future: asyncio.Future[None]) -> None:
        """Ends a wait that was not woken. The store's watch stays until it reports; that is harmless."""
        waiters = self._waiting.get(queue)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiting[queue]

    def wake_topic(self, topic: str) -> None:
        """Wakes who waits for a topic's queues: it is gone, as their next look says."""
        for queue in [queue for queue in self._waiting if queue[0] == topic]:
            self._wake(queue)

    def close(self) -> None:
        """Wakes everybody and holds nobody from now on; the first step of a graceful stop."""
        self.closed = True
        for queue in list(self._waiting):
            self._wake(queue)

    def _moved(self) -> bool:
        if not self._waiting:
            return False  # asking costs the dispatcher's lock; what it has to report keeps
        for queue in self._store.take_notified_queues():
            self._wake(queue)
        return bool(self._waiting)

    def _wake(self, queue: Queue) -> None:
        for future in self._waiting.pop(queue, ()):
            if not future.done():
                future.set_result(None)
