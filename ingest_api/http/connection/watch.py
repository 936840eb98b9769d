"""Ends connections that cost more than they should: in number, and in time.

Owns one timer for all connections, and the bytes of answers that nobody reads.

Invariants: a client that stops in the middle - of a head, of reading an answer, between requests - keeps
nothing here beyond its time.

A timer of its own for each request would cost a tenth of storing a small message; looking at all connections
from time to time costs nothing a request could notice. So a time-out may come late by a quarter of the
shortest of them, at most a second.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ingest_api.process_settings import HttpSettings
from store_native.errors import Unavailable

_LONGEST_TICK_S = 1.0
REFUSED_AT_ONCE = 16
"""So many connections above the limit receive the reason, and stay until they have read it; those above are
closed without a word. Each takes one of the files the process may have open, beside those of the limit."""


class Watched(Protocol):
    """A connection."""

    def look_at_time(self, now: float) -> None:
        """Ends what is overdue."""


class ConnectionWatch:
    """Looks at all connections from time to time.

    Args:
        settings: The bounds.

    Attributes:
        now: The loop's time at the last look; saves each request asking for it.
        unsent_bytes: Of answers that wait for their clients to read.
        write_timeout_s: Of the settings, or less while the broker stops.
        stopping: The broker stops.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.unsent_bytes = 0
        self.write_timeout_s = settings.write_timeout_s
        self.stopping = False
        times = (settings.head_timeout_s, settings.write_timeout_s, settings.keep_alive_s)
        self._tick_s = min(_LONGEST_TICK_S, min(times) / 4)
        self._connections: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Watched, loop: asyncio.AbstractEventLoop) -> Unavailable | None:
        """Takes a new connection in; the caller owes a :meth:`leave`.

        Returns:
            Why it is one too many; None when it is not.

        Raises:
            Unavailable: There are far too many; nobody has time to tell it.
        """
        self._connections.add(connection)
        if self._timer is None:
            self.now = loop.time()
            self._timer = loop.call_later(self._tick_s, self._look, loop)
        above = len(self._connections) - self.settings.max_connections
        if above <= 0:
            return None
        refusal = Unavailable(
            "SYSTEM_BUSY",
            f"{self.settings.max_connections} connections are open already; nothing was stored",
            reason="connections",
        )
        if above > REFUSED_AT_ONCE:
            raise refusal
        return refusal

    def leave(self, connection: Watched) -> None:
        """Forgets a connection that is gone."""
        self._connections.discard(connection)

    def stop(self, within_s: float) -> None:
        """Gives answers that nobody reads at most so long from now on."""
        self.stopping = True
        self.write_timeout_s = min(self.write_timeout_s, within_s)
        self._tick_s = min(self._tick_s, within_s / 4)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = now = loop.time()
        for connection in list(self._connections):
            connection.look_at_time(now)
        self._timer = loop.call_later(self._tick_s, self._look, loop) if self._connections else None
