"""uvicorn's HTTP protocol: strict about where a request ends, with a fast path for small sends.

Owns which bytes of a connection are a request, and the decision, for each, whether it needs a task; the
order of the answers is ``connection/ordered_answers.py``'s.

Invariants: bytes that were sent as a body are never parsed as a request, whatever the head said of upgrades
or of closing; whatever is not whole, or not ordinary, or refused, takes uvicorn's path as if there were no
fast path.

Threads: the event loop. Given to uvicorn by server.py.

uvicorn makes a scope, a cycle and a task for each request; that costs several times what storing a small
message does. A send whose bytes are all there when they have been parsed is stored and answered at once, and
with sync flush its answer waits in the queue of flush_wait.py.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingest_api.http.connection import head_limits
from ingest_api.http.connection.ordered_answers import OrderedAnswers
from ingest_api.http.connection.upgrade import head_without_upgrade, refuse_upgrade
from ingest_api.http.guarded_app import GuardedApp
from ingest_api.http.messages.targets import known_targets, learn_topic
from ingest_api.http.request.cycle import RequestCycle, describe_request
from ingest_api.http.request.guard import malformed
from store_native.errors import InvalidRequest, LakeMQError, Unavailable


class _Refused(Exception):
    """Stops the parser at a head that is refused."""


class BrokerProtocol(OrderedAnswers):
    """One connection; arguments as uvicorn gives them."""

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        app = config.loaded_app
        if not isinstance(app, GuardedApp):
            raise TypeError(f"this protocol serves a GuardedApp, not {type(app).__name__}")
        super().__init__(app.errors, app.watch, config, *arguments, **named)
        self._fast_path = app.fast_path
        self._bounds = app.watch.settings
        self._guard = app.guard
        self._version = "1.1"
        # The page's, when it is another's and allowed.
        self._origin: bytes | None = None
        # uvicorn's own is lenient: it goes on behind a request that said it was the last.
        self.parser = httptools.HttpRequestParser(self)
        self._topic: str | None = None
        self._body = b""
        # Where the parser is: in a head, in a body (of ``self.cycle``, or of a send without one), or neither.
        self._in_head = False
        self._in_body = False
        self._upgrade = False
        # Bytes of the head before the ones being parsed; -1 when it began in these. Bytes being parsed.
        self._head_bytes = 0
        self._fed = 0
        # Bytes parsed since the last ones of a body.
        self._framing_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Called by the event loop."""
        _connection_made(self, transport)
        try:
            refusal = self._watch.enter(self, self.loop)
        except Unavailable:
            transport.abort()
            return
        self._since = self._watch.now
        if refusal is not None:
            self._end(refusal)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._ended:
            return
        self._fed = size = len(data)
        self._framing_bytes += size
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._stop_parsing(error)
        if self._topic is not None:
            # The rest of the body is still to come: a task waits for it, with a deadline.
            self._take_slow_path()
        if self._in_head:
            self._head_bytes = 0 if self._head_bytes < 0 else self._head_bytes + size
            if self._head_bytes > self._bounds.max_header_bytes:
                self._end(self._head_too_large())
        elif self._in_body and self._framing_bytes > self._bounds.max_header_bytes:
            self._end(self._head_too_large())

    def eof_received(self) -> bool:  # type: ignore[override]  # the event loop wants to know
        """Called by the event loop when the client has closed its side; it may still read answers.

        Returns:
            Whether the connection stays open for them.
        """
        if self._in_head or self._in_body:
            self._end(malformed("the connection ended inside the request"))
        elif self._answering is None:
            return False
        self._ended = True
        for cycle in self._outstanding():
            cycle.end_of_client()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._watch.leave(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by uvicorn at a stop; what is being answered, or waits for it, gets its answer."""
        if self._in_head:
            self._end(
                Unavailable("SERVICE_NOT_AVAILABLE", "the broker is stopping; this request was not looked at")
            )
        elif self._answering is None and not self._ended:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def look_at_time(self, now: float) -> None:
        """Called from time to time; ends what is overdue."""
        bounds = self._bounds
        transport = self.transport
        idle = self._answering is None
        if idle or self.flow.write_paused or transport.is_closing():
            if self._unsent.look(transport, now):
                return
        else:
            self._unsent.forget()
        if transport.is_closing() or self._ended:
            return
        waited = now - self._since
        if self._in_head:
            if waited >= bounds.head_timeout_s:
                self._end(head_limits.head_too_late(bounds))
        elif idle and waited >= (bounds.head_timeout_s if self._in_body else bounds.keep_alive_s):
            # Between two requests, or answered already while the rest of its body never came.
            transport.close()

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._in_head = True
        self._head_bytes = -1
        self._since = self._watch.now
        _on_message_begin(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header, and for each trailer; a trailer means nothing here."""
        if self._in_body:
            return
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head = False
        bounds = self._bounds
        if len(self.url) > bounds.max_target_bytes:
            self._refuse(head_limits.target_too_long(bounds))
        if len(self.headers) > bounds.max_headers:
            self._refuse(head_limits.too_many_headers(bounds))
        # The sum is taken only where it can be too large: of few bytes that came at once it is not.
        if (self._fed > bounds.max_header_bytes or self._head_bytes >= 0) and (
            sum(len(name) + len(value) for name, value in self.headers) > bounds.max_header_bytes
        ):
            self._refuse(head_limits.head_too_large(bounds))
        self._framing_bytes = 0
        self._version = version = self.parser.get_http_version()
        method = self.parser.get_method()
        found = self._guard.check(version, method, self.url, self.headers)
        self._origin = None
        if found is not None:
            if isinstance(found, LakeMQError):
                self._refuse(found)
            self._origin = found
        if self.parser.should_upgrade():
            if (refusal := refuse_upgrade(method, self.headers)) is not None:
                self._refuse(refusal)
            self._upgrade = True
            return
        if method == b"POST" and self._is_ordinary():
            self._topic = known_targets.get(self.url) or learn_topic(self.url)
        if self._topic is None:
            self._begin()
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._framing_bytes = 0
        if self._topic is None:
            _on_body(self, body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a body."""
        if self._upgrade:
            return
        self._in_body = False
        topic = self._topic
        if topic is None:
            _on_message_complete(self)
        elif self._fast_path(self, topic, self.headers, self._body):
            self._topic = None
            self._body = b""
        else:
            self._take_slow_path()
            _on_message_complete(self)

    def _is_ordinary(self) -> bool:
        """Says whether the request is the first of the connection, and nothing special is asked of it."""
        parser = self.parser
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and self._version == "1.1"
            and self._origin is None
            and parser.should_keep_alive()
        )

    def _take_slow_path(self) -> None:
        body, self._topic, self._body = self._body, None, b""
        self._begin()
        if body:
            _on_body(self, body)

    def _begin(self) -> None:
        """Starts a request whose head is complete, or queues it behind an earlier one."""
        scope = self.scope
        method = self.parser.get_method()
        version = self._version
        refusal = describe_request(scope, method, self.url, version)
        if refusal is not None:
            self._refuse(refusal)
        common = self.server_state.default_headers
        if self._origin is not None:
            common = common + self._guard.cors_headers(self._origin, method, self.headers)
        if len(self.pipeline) >= self._bounds.max_pipelined and not self._is_next():
            self._refuse(head_limits.too_many_pipelined(self._bounds))
        cycle = RequestCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=common,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._take_turn(cycle)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Parses the head again without its offer, and then what follows it as the body that it is.

        The parser takes what comes behind such a head for another protocol, and on its next call for a
        new request; a body would be executed.
        """
        self._upgrade = False
        head = head_without_upgrade(self.parser.get_method(), self.url, self._version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _head_too_large(self) -> InvalidRequest:
        if self._in_head and len(self.url) > self._bounds.max_target_bytes:
            return head_limits.target_too_long(self._bounds)
        return head_limits.head_too_large(self._bounds)

    def _refuse(self, error: LakeMQError) -> NoReturn:
        """Refuses the request whose head was just read, and all behind it; called inside the parser."""
        self._refusal = error
        raise _Refused

    def _stop_parsing(self, error: httptools.HttpParserError) -> None:
        if self._ended:
            return  # bytes behind the last request
        self._end(self._refusal or malformed(f"these bytes are no HTTP/1.1 request: {_reason(error)}"))

    def _end(self, error: LakeMQError) -> None:
        """Ends the connection with a refusal, once everything before it is answered."""
        self._ended = True
        cycle = self.cycle
        refusal: LakeMQError | None = error
        if self._in_body and self._topic is None and isinstance(cycle, RequestCycle):
            refusal = self._withdraw(cycle, error)
        self._in_head = self._in_body = False
        self._topic, self._body = None, b""
        self._refusal = refusal
        if self._answering is None:
            self._finish()


def _reason(error: httptools.HttpParserError) -> str:
    return str(error.args[0]) if error.args and error.args[0] else type(error).__name__


# Looked up once: super() takes longer than some of these do.
_connection_made = HttpToolsProtocol.connection_made
_on_message_begin = HttpToolsProtocol.on_message_begin
_on_body = HttpToolsProtocol.on_body
_on_message_complete = HttpToolsProtocol.on_message_complete
