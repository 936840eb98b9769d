"""An HTTP connection over TLS: the same protocol behind a handshake.

Owns what a connection costs before it is one: it counts among all others from its first byte on.

Invariants: who asks plainly is answered 400 in plain HTTP, and nothing of the request is looked at.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config

from ingest_api.http.uvicorn_protocol import BrokerProtocol
from lakemq.tls.server_connection import TlsConnection
from store_native.errors import InvalidRequest, Unavailable


def over_tls(context: ssl.SSLContext) -> Callable[..., asyncio.Protocol]:
    """Returns what uvicorn makes its connections with."""

    def connection(config: Config, **named: Any) -> asyncio.Protocol:
        return HttpOverTls(context, config, **named)

    return connection


class HttpOverTls(TlsConnection):
    """One connection; arguments behind the first as uvicorn gives them."""

    def __init__(self, context: ssl.SSLContext, config: Config, **named: Any) -> None:
        app = config.loaded_app
        self._watch = app.watch
        self._errors = app.errors
        protocol = BrokerProtocol(config, **named)
        super().__init__(context, protocol, handshake_s=app.watch.settings.head_timeout_s)

    def enter(self) -> bool:
        """See the base class; one connection too many hears why once it has shaken hands."""
        try:
            self._watch.enter(self, asyncio.get_running_loop())
        except Unavailable:
            return False
        return True

    def leave(self) -> None:
        """See the base class."""
        self._watch.leave(self)

    def look_at_time(self, now: float) -> None:
        """Called from time to time, while the handshake lasts."""
        if self._watch.stopping:
            self.abort()

    def answer_plain(self, begun: bytes) -> bytes:
        """See the base class."""
        refusal = InvalidRequest(
            "MALFORMED_REQUEST", "this port speaks TLS: its address begins with https://"
        )
        head, body = self._errors.render(refusal, self._scope())
        return b"%bconnection: close\r\n\r\n%b" % (head, body)

    def note(self, reason: str) -> None:
        """See the base class; at most some lines a second."""
        self._errors.log_line(self._scope(), 400, "NO_TLS", None, reason=reason)

    def _scope(self) -> dict[str, Any]:
        return {"method": "-", "path": "-", "client": (self.peer,)}
