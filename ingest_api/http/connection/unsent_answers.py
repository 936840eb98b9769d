"""What of a connection's answers its client has not read.

Owns the connection's share of the bytes that wait, and how long they have.

Invariants: a client that reads neither ``LEAST_READ`` bytes nor the rest within the time-out is cut off; what
a connection adds to the sum of all it takes back when it is lost.
"""

from __future__ import annotations

import asyncio

from ingest_api.http.connection.watch import ConnectionWatch

LEAST_READ = 64 << 10


class UnsentAnswers:
    """The unsent bytes of one connection.

    Args:
        watch: Has the sum of all connections, and the time-out.
    """

    __slots__ = ("_counted", "_seen", "_watch")

    def __init__(self, watch: ConnectionWatch) -> None:
        self._watch = watch
        self._counted = 0
        # Bytes unsent at the last progress, and when that was.
        self._seen: tuple[int, float] | None = None

    def count(self, size: int) -> None:
        """Counts the bytes that wait now."""
        self._watch.unsent_bytes += size - self._counted
        self._counted = size

    def look(self, transport: asyncio.Transport, now: float) -> bool:
        """Cuts off a client that reads too slowly; returns whether anything waits for it."""
        size = transport.get_write_buffer_size()
        if not size:
            self._seen = None
            return False
        if self._seen is None or size <= self._seen[0] - LEAST_READ:
            self._seen = (size, now)
        elif now - self._seen[1] >= self._watch.write_timeout_s:
            transport.abort()
        return True

    def forget(self) -> None:
        """Forgets when the client last read: the broker has not written."""
        self._seen = None
