"""A slave's connection over TLS, until its handshake is done.

Owns which of them there are.

Invariants: they are bounded; the oldest makes place for a new one, so that strangers lock nobody out. A slave
that speaks plainly is told so by a REFUSAL, anything else is closed without a word.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from ha_replicator.link_limits import LinkLimits
from ha_replicator.wire.frames import MAGIC
from ha_replicator.wire.handshake import Refusal, frame_of
from lakemq.tls.server_connection import TlsConnection

log = logging.getLogger("lakemq.replication")

_REFUSAL = Refusal(
    "ARGUMENT_ILLEGAL",
    "this port speaks TLS: give the slave the master's https address, or --tls-ca beside an ha:// one",
    0,
)


class TlsOpenings:
    """The connections in their handshake.

    Args:
        context: This broker's certificate.
        most: So many at a time.
    """

    def __init__(self, context: ssl.SSLContext, most: int) -> None:
        self.context = context
        self._most = most
        self._open: dict[SlaveOverTls, None] = {}

    def put(self, opening: SlaveOverTls) -> None:
        """Takes one more."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[opening] = None

    def drop(self, opening: SlaveOverTls) -> None:
        """Its handshake is done, or it is gone."""
        self._open.pop(opening, None)

    def close(self) -> None:
        """Ends all."""
        for opening in list(self._open):
            opening.abort()


class SlaveOverTls(TlsConnection):
    """One connection.

    Args:
        openings: Counts it.
        protocol: Goes on behind the handshake.
    """

    def __init__(self, openings: TlsOpenings, protocol: asyncio.Protocol) -> None:
        super().__init__(openings.context, protocol, handshake_s=LinkLimits().handshake_s)
        self._openings = openings

    def enter(self) -> bool:
        """See the base class."""
        self._openings.put(self)
        return True

    def leave(self) -> None:
        """See the base class."""
        self._openings.drop(self)

    def answer_plain(self, begun: bytes) -> bytes:
        """See the base class."""
        self.note("it speaks plainly")
        return b"".join(frame_of(_REFUSAL).pieces()) if MAGIC.startswith(begun[: len(MAGIC)]) else b""

    def note(self, reason: str) -> None:
        """See the base class."""
        fields = {"slave": self.peer, "reason": reason}
        log.warning("a replication connection came to no TLS", extra={"fields": fields})
