"""The answers of one connection, in the order of its requests.

Owns which request is being answered, the ones queued behind it, what of the answers is unsent, and the
refusal that ends the connection.

Invariants: answers leave a connection in the order of its requests, the refusal of bytes that are no request
behind all of them; a connection that has ended parses nothing more.

Threads: the event loop.

The base class of the protocol in ``uvicorn_protocol.py``, which says what is a request: an object of its own
would cost a small send further calls.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingest_api.http.connection.held_send import HeldSend
from ingest_api.http.connection.unsent_answers import UnsentAnswers
from ingest_api.http.connection.watch import ConnectionWatch
from ingest_api.http.request.cycle import RequestCycle
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.http.responses.raw_response import common_lines
from store_native.errors import LakeMQError

_LINGER_S = 2.0
"""A refused client gets this long to read why: closing a socket with unread bytes resets it, and the reset
can overtake the answer."""

_SHOWN_TARGET = 200


class OrderedAnswers(HttpToolsProtocol):
    """The answering half of a connection.

    Args:
        errors: Renders the refusal.
        watch: Of all connections.
        arguments: As uvicorn gives them.
        named: As uvicorn gives them.
    """

    def __init__(self, errors: ErrorResponses, watch: ConnectionWatch, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.url = b""
        self._errors = errors
        self._watch = watch
        # When the connection came where it is, and what of its answers was unsent when.
        self._since = 0.0
        self._unsent = UnsentAnswers(watch)
        self._waiting = HeldSend()
        # Whether something is being answered; requests behind it wait in ``self.pipeline``.
        self._answering: RequestCycle | HeldSend | None = None
        # No more bytes are parsed; the connection ends behind the last answer, with ``_refusal`` if any.
        self._ended = False
        self._refusal: LakeMQError | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop; uvicorn tells only the newest request."""
        self._unsent.count(0)
        for cycle in self._outstanding():
            cycle.abandon()
        _connection_lost(self, exc)

    def pause_writing(self) -> None:
        """Called by the event loop when the client reads more slowly than it is answered."""
        self._unsent.count(self.transport.get_write_buffer_size())
        _pause_writing(self)

    def resume_writing(self) -> None:
        """Called by the event loop when the client has read."""
        self._unsent.count(0)
        _resume_writing(self)

    def on_response_complete(self) -> None:
        """Called when an answer is written; starts the next request."""
        self._answering = None
        self._since = self._watch.now
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._ended:
            self._finish()

    def wait(self) -> None:
        """Says that the answer comes later: the next request queues until then."""
        waiting = self._waiting
        waiting.response_complete = False
        self.cycle = waiting  # type: ignore[assignment]  # it has what uvicorn asks of a cycle
        self._answering = waiting

    def answer(self, head: bytes, body: bytes) -> None:
        """Writes the answer of a send that uvicorn knows nothing of."""
        waiting = self._waiting
        waiting.response_complete = True
        transport = self.transport
        if transport.is_closing():
            return
        common = common_lines(self.server_state.default_headers)
        if waiting.keep_alive:
            transport.write(b"%b%b\r\n%b" % (head, common, body))
        else:
            transport.write(b"%b%bconnection: close\r\n\r\n%b" % (head, common, body))
            transport.close()
        self.on_response_complete()

    def close(self) -> None:
        """Closes without an answer."""
        self.transport.close()

    def _outstanding(self) -> list[RequestCycle]:
        cycles = (self._answering, *(queued for queued, _ in self.pipeline))
        return [cycle for cycle in cycles if isinstance(cycle, RequestCycle)]

    def _is_next(self) -> bool:
        """Says whether a request that comes now would be answered at once."""
        return self.cycle is None or self.cycle.response_complete

    def _take_turn(self, cycle: RequestCycle) -> None:
        """Starts a request, or queues it behind the ones before it."""
        is_next = self._is_next()
        self.cycle = cycle
        if is_next:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        _start_asgi_task(self, cycle, app)

    def _withdraw(self, cycle: RequestCycle, error: LakeMQError) -> LakeMQError | None:
        """Takes back the newest request, whose body does not end; ``error`` is the answer to it.

        Returns:
            The error, or None when the request has an answer already.
        """
        if cycle.response_started:
            return None
        if self._answering is cycle:
            self._answering = None
            cycle.abandon()
        else:
            self.pipeline.popleft()
        return error

    def _finish(self) -> None:
        """Writes the refusal, if there is one, and closes."""
        error, self._refusal = self._refusal, None
        transport = self.transport
        if transport.is_closing():
            return
        if error is None:
            transport.close()
            return
        target = self.url[:_SHOWN_TARGET].decode("latin-1")
        head, body = self._errors.render(error, {"method": "-", "path": target, "client": self.client})
        common = common_lines(self.server_state.default_headers)
        transport.write(b"%b%bconnection: close\r\n\r\n%b" % (head, common, body))
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, transport.close)
        if transport.can_write_eof():
            transport.write_eof()


# Looked up once: super() takes longer than some of these do.
_connection_lost = HttpToolsProtocol.connection_lost
_pause_writing = HttpToolsProtocol.pause_writing
_resume_writing = HttpToolsProtocol.resume_writing
_start_asgi_task = HttpToolsProtocol._start_asgi_task  # noqa: SLF001 - this file's class is a subclass
