"""Who wants to know that the log moved.

Owns the events of the drivers' tasks.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Wakeups:
    """Sets the events of all who wait.

    Args:
        listen: Called when somebody begins to wait.
    """

    def __init__(self, listen: Callable[[], None]) -> None:
        self._listen = listen
        self._events: set[asyncio.Event] = set()

    @property
    def wanted(self) -> bool:
        """Whether anybody listens at all."""
        return bool(self._events)

    def add(self) -> asyncio.Event:
        """Returns an event that is set at each move, until :meth:`discard`."""
        event = asyncio.Event()
        self._events.add(event)
        self._listen()
        return event

    def discard(self, event: asyncio.Event) -> None:
        """Forgets an event."""
        self._events.discard(event)

    def wake(self) -> None:
        """The log moved."""
        for event in self._events:
            event.set()


async def wait_until(event: asyncio.Event, at: float, now: float) -> None:
    """Waits for the event, at most until ``at``; clears it."""
    try:
        async with asyncio.timeout(max(at - now, 0)):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()
