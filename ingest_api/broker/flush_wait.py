"""Holds answers back until the store's watermarks have passed them.

Owns the queue of waiting sends and changes.

Invariants: a send is answered SEND_OK only when the watermark its flush mode names has passed its end offset;
one flush completes every waiter below it. With sync flush that is the dispatched one, which follows the
flushed one: a client that has the answer can read the message. A poisoned store fails all of them at once. Of
a master that asks its replicas the dispatched one follows what they have: when not enough of them are in
reach, who waits learns that as soon as the message is on this broker's own disk.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ingest_api.broker.store_events import StoreEvents
from store_native import Store
from store_native.errors import Closed

SendStatus = Literal["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]
Outcome = bool | Closed
"""True: as safe as asked. False: not in time, or not with these replicas; :meth:`FlushWaiter.shortfall` says
which. Closed: the store failed, or the broker stopped."""


@dataclass(slots=True, order=False)
class _Waiter:
    end_offset: int
    due: float
    notify: Callable[[Outcome], None]


class FlushWaiter:
    """Tells waiters as the watermarks move.

    Args:
        store: Whose watermarks.
        progress: Says when they moved.
        loop: The loop the broker runs on.
        sync_flush: Sends wait for the flush; otherwise the append is enough.
        timeout_s: A waiter gives up after it; what it waits for stays stored.

    Attributes:
        in_reach: Of a master that asks its replicas: whether enough of them can have a message soon. None
            asks nobody.
    """

    def __init__(
        self,
        store: Store,
        progress: StoreEvents,
        loop: asyncio.AbstractEventLoop,
        *,
        sync_flush: bool,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._progress = progress
        self._loop = loop
        self._timeout_s = timeout_s
        self._sends: deque[_Waiter] = deque()
        self._changes: deque[_Waiter] = deque()
        self._armed = False
        self._flush_asked = False
        self._poisoned: str | None = None
        self.sync_flush = sync_flush
        self.in_reach: Callable[[], bool] | None = None
        self.flushed = 0
        self.confirmed = 0
        self.settled = 0
        progress.subscribe(self._moved)
        self._look()

    @property
    def waiting(self) -> int:
        """Sends and changes not completed yet."""
        return len(self._sends) + len(self._changes)

    def wait_send(self, end_offset: int) -> asyncio.Future[bool] | None:
        """Waits for a send.

        Returns:
            None when it is as safe as asked already; else a future that becomes True when it is, False after
            the time-out or without replicas, or raises Closed STORE_POISONED.

        Raises:
            Closed: STORE_POISONED, known already.
        """
        if self.is_durable(end_offset):
            return None
        return self._future(self._sends, end_offset)

    def is_durable(self, end_offset: int) -> bool:
        """Says whether a send is as safe as asked already."""
        return end_offset <= self.settled or not (self.sync_flush or self.in_reach is not None)

    def shortfall(self, end_offset: int) -> SendStatus:
        """Says what is missing to a send that was not as safe as asked when its waiting ended."""
        self._look()
        if end_offset > self.flushed or end_offset <= self.confirmed or self.in_reach is None:
            return "FLUSH_DISK_TIMEOUT"
        return "FLUSH_SLAVE_TIMEOUT" if self.in_reach() else "SLAVE_NOT_AVAILABLE"

    def replicas_changed(self) -> None:
        """Replicas came or went: nobody waits for those that are not in reach."""
        if self._sends or self._changes:
            self._moved()

    def on_durable(self, end_offset: int, notify: Callable[[Outcome], None]) -> None:
        """Waits for a send as :meth:`wait_send` does, without a future.

        Raises:
            Closed: STORE_POISONED, known already.
        """
        self._wait(self._sends, end_offset, notify)

    def wait_change(self, end_offset: int) -> asyncio.Future[bool] | None:
        """Waits for an administrative record: flushed, and dispatched so that every reader sees it."""
        if end_offset <= self.settled:
            return None
        return self._future(self._changes, end_offset)

    def flush_soon(self) -> None:
        """Has what is appended flushed when this pass of the event loop ends: once for all of it."""
        if not self._flush_asked and (self.sync_flush or self.in_reach is not None):
            self._flush_asked = True
            self._loop.call_soon(self._ask_for_flush)

    def close(self) -> None:
        """Fails what still waits; called after the last request was answered."""
        self._fail(Closed("STORE_CLOSED", "the broker stopped; the message may or may not be flushed"))

    def _future(self, waiters: deque[_Waiter], end_offset: int) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = self._loop.create_future()
        self._wait(waiters, end_offset, partial(_resolve, future))
        return future

    def _wait(self, waiters: deque[_Waiter], end_offset: int, notify: Callable[[Outcome], None]) -> None:
        if self._poisoned is not None:
            # A worker thread's append came back after the store had said so; it will not say it again.
            raise _poisoned(self._poisoned)
        waiter = _Waiter(end_offset, self._loop.time() + self._timeout_s, notify)
        if waiters and end_offset < waiters[-1].end_offset:
            # Only a worker thread's append can come back late.
            insort(waiters, waiter, key=lambda other: other.end_offset)
        else:
            waiters.append(waiter)
        if not self._armed:
            self._armed = True
            self._loop.call_at(waiter.due, self._expire)
        if not self._progress.listening:
            self._progress.listen()

    def _moved(self) -> bool:
        self._look()
        _complete(self._sends, self.settled)
        _complete(self._changes, self.settled)
        if (self._sends or self._changes) and self.in_reach is not None and not self.in_reach():
            _give_up(self._sends, self.flushed)
            _give_up(self._changes, self.flushed)
        if reason := self._store.poisoned:
            self._poisoned = reason
            self._fail(_poisoned(reason))
        return bool(self._sends or self._changes)

    def _ask_for_flush(self) -> None:
        self._flush_asked = False
        self._store.flush_soon()

    def _look(self) -> None:
        _, self.flushed, dispatched, self.confirmed = self._store.watermarks()
        self.settled = min(self.flushed, dispatched)

    def _expire(self) -> None:
        """Gives up the waiters that are due.

        All have the same time-out, and nearly come in order of it, so this runs once in a time-out, not once
        a send.
        """
        self._armed = False
        now = self._loop.time()
        next_due = float("inf")
        for waiters in (self._sends, self._changes):
            for waiter in [w for w in waiters if w.due <= now]:
                waiters.remove(waiter)
                # Also where it is on disk and only the dispatcher is stuck: nobody can read it.
                waiter.notify(False)
            next_due = min([next_due, *(w.due for w in waiters)])
        if next_due < float("inf"):
            self._armed = True
            self._loop.call_at(next_due, self._expire)

    def _fail(self, error: Closed) -> None:
        for waiters in (self._sends, self._changes):
            while waiters:
                waiters.popleft().notify(error)


def _poisoned(reason: str) -> Closed:
    return Closed("STORE_POISONED", f"{reason}; whether the message survives is unknown")


def _complete(waiters: deque[_Waiter], watermark: int) -> None:
    while waiters and waiters[0].end_offset <= watermark:
        waiters.popleft().notify(True)


def _give_up(waiters: deque[_Waiter], flushed: int) -> None:
    while waiters and waiters[0].end_offset <= flushed:
        waiters.popleft().notify(False)


def _resolve(future: asyncio.Future[bool], outcome: Outcome) -> None:
    if future.done():
        return  # a client that went away has cancelled it
    if isinstance(outcome, Closed):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
