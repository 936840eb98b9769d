"""Reads a request's body: within a size, within a time, within the memory large bodies may take.

Owns the deadline of slow bodies.

Invariants: a client that sends too much is answered before the rest is read, and one that stops sending is
answered after ``timeout_s``; both keep nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Receive

from ingest_api.broker.admission import Admission
from ingest_api.http.request.cycle import RequestCycle
from store_native.errors import InvalidRequest, Unavailable

SMALL = 64 << 10
"""A body of this size may be in flight already when its request is refused; it is read and dropped."""

RETURNED = (1 << 30) + (64 << 10)
"""What a message that a group sends back may have, with its fields: as the largest log file holds it.

It was taken once, maybe under a larger limit than today's. `max_parsing_bytes` bounds it as every body.
"""


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


@dataclass(slots=True)
class Body:
    """A body being read.

    Attributes:
        chunks: What has arrived.
        size: Bytes in ``chunks``.
        complete: The end has arrived.
        reserved: Bytes reserved with the admission; released by the owner of the body.
    """

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    complete: bool = False
    reserved: int = 0


class Deadlines:
    """Cancels tasks that read for too long, with one timer for all of them.

    All have the same time, so they expire in the order they came: the timer looks at the oldest
    only. A timer for each request would cost more than reading its body does.

    Args:
        timeout_s: How long a body may take.
        clock: Seconds, never going back; the event loop's in production.
        call_at: Calls a function at a time of that clock; the event loop's in production.
        loop: The running loop. Python 3.11 makes a system call to find it out, for each request.
    """

    def __init__(
        self,
        timeout_s: float,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], object],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop
        self.timeout_s = timeout_s
        self._clock = clock
        self._call_at = call_at
        self._due: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._armed = False
        self._last_due = float("inf")

    @property
    def stopping(self) -> bool:
        """Whether bodies have less time, because the broker stops."""
        return self._last_due < float("inf")

    def stop(self, within_s: float) -> None:
        """Gives every body, begun or not, at most so long from now."""
        if not self.stopping:
            self._last_due = self._clock() + within_s
            self._due = {task: min(due, self._last_due) for task, due in self._due.items()}
            self._call_at(self._last_due, self._sweep)

    def enter(self) -> asyncio.Task[object]:
        """Starts the time of the running task, and returns it."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        due = min(self._clock() + self.timeout_s, self._last_due)
        self._due[task] = due
        if not self._armed:
            self._armed = True
            self._call_at(due, self._sweep)
        return task

    def leave(self, task: asyncio.Task[object]) -> None:
        """Stops it."""
        self._due.pop(task, None)

    def took(self, task: asyncio.Task[object]) -> bool:
        """Says, once, whether the task was cancelled by its deadline (and not by a stop)."""
        if task not in self._expired:
            return False
        self._expired.discard(task)
        return True

    def _sweep(self) -> None:
        self._armed = False
        now = self._clock()
        for task, due in list(self._due.items()):
            if due > now:
                self._armed = True
                self._call_at(due, self._sweep)
                return
            del self._due[task]
            self._expired.add(task)
            task.cancel()


class BodyReader:
    """Reads bodies.

    Args:
        deadlines: The time a body may take.
        admission: The memory large bodies may take.
        limit: Bytes of one body.
        small: Bodies up to it are not counted with the admission.
    """

    def __init__(self, deadlines: Deadlines, admission: Admission, limit: int, small: int = SMALL) -> None:
        self._deadlines = deadlines
        self._admission = admission
        self._limit = limit
        self._small = small

    def check_length(self, length: int | None, at_least: int = 0) -> None:
        """Refuses a body by its Content-Length, before any of it is read; `at_least` bytes are taken."""
        limit = max(self._limit, at_least)
        if length is not None and length > limit:
            raise _too_large(limit)

    async def read(self, receive: Receive, length: int | None, body: Body, at_least: int = 0) -> None:
        """Reads to the end, into ``body`` (which its owner keeps when this raises).

        Args:
            receive: ASGI's.
            length: Content-Length, or None for a chunked body.
            body: Empty.
            at_least: Bytes that it may have, whatever the limit is.

        Raises:
            InvalidRequest: REQUEST_TOO_LARGE or REQUEST_TIMEOUT.
            Unavailable: TOO_MANY_REQUESTS, from the admission.
            ClientGone: The connection closed.
        """
        self.check_length(length, at_least)
        limit = max(self._limit, at_least)
        if (data := body_at_hand(receive, self._small)) is not None:
            body.chunks.append(data)
            body.size = len(data)
            body.complete = True
            return
        if length is not None and length > self._small:
            # Memory is counted as bytes arrive: a client that announces much and sends nothing holds nothing.
            self._admission.check_capacity(length)
        deadlines = self._deadlines
        task = deadlines.enter()
        try:
            while not body.complete:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                chunk = message.get("body", b"")
                body.complete = not message.get("more_body", False)
                if chunk:
                    body.chunks.append(chunk)
                    body.size += len(chunk)
                    if body.size > limit:
                        raise _too_large(limit)
                    if body.size > self._small and body.size > body.reserved:
                        self._reserve_more(body)
        except asyncio.CancelledError:
            if not deadlines.took(task):
                raise
            task.uncancel()
            if deadlines.stopping:
                raise Unavailable(
                    "SERVICE_NOT_AVAILABLE",
                    "the broker stopped before the body was there; nothing was stored",
                ) from None
            raise InvalidRequest(
                "REQUEST_TIMEOUT",
                f"the body did not arrive within {deadlines.timeout_s:g} s; nothing was stored",
                limit_s=deadlines.timeout_s,
            ) from None
        finally:
            deadlines.leave(task)

    def release(self, body: Body) -> None:
        """Gives back what a body reserved; call it once its bytes are not needed any more."""
        self._admission.release(body.reserved)
        body.reserved = 0

    def _reserve_more(self, body: Body) -> None:
        # A chunked body says no length; it is counted as it grows, a step at a time.
        body.reserved += self._admission.reserve(max(body.size - body.reserved, self._small))


def body_at_hand(receive: Receive, limit: int) -> bytes | None:
    """Returns a whole small body that uvicorn holds already; None when there is none, or another server.

    Nearly every small request is like this: its body came with its head. Then there is nothing to wait
    for, so no deadline and no coroutine are needed.
    """
    cycle = getattr(receive, "__self__", None)
    if type(cycle) is not RequestCycle or cycle.more_body or cycle.disconnected:
        return None
    return bytes(cycle.body) if len(cycle.body) <= limit else None


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest("REQUEST_TOO_LARGE", f"a request's body has at most {limit} bytes", limit=limit)


async def drain_request(receive: Receive, timeout_s: float = 2.0, limit: int = 16 << 20) -> bool:
    """Reads and drops what a refused client is still sending; returns whether its end came.

    Closing a socket with unread bytes resets it, and the reset can overtake the answer: the client
    would see a broken pipe instead of the reason. Bounded in time and bytes.
    """
    dropped = 0
    try:
        async with asyncio.timeout(timeout_s):
            while dropped < limit:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return True
                dropped += len(message.get("body", b""))
    except TimeoutError:
        pass
    return False
