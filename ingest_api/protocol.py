"""uvicorn's HTTP protocol with a short way for small sends.

Owns the decision, for each request, whether it needs a task. uvicorn makes a scope, a cycle and a task for
each; that costs several times what storing a small message does. A send whose bytes are all there when they
have been parsed is stored and answered at once, and with sync flush its answer waits in the queue of
ack_wait.py. What never breaks: answers leave a connection in the order of its requests; whatever is not
whole, or not ordinary, or refused, goes uvicorn's way as if this file did not exist. Given to uvicorn by
server.py.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingest_api.app import BrokerApp, send_topic
from ingest_api.whole_answer import common_lines

_MAX_TARGETS = 4096

# Request target -> topic. Bounded: beyond it a target is looked at each time.
_targets: dict[bytes, str] = {}


class _Held:
    """Stands where uvicorn keeps the connection's request, while a send waits for its flush.

    uvicorn asks it whether the next request has to queue, and tells it of a stop and of a lost client.
    """

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    def __init__(self) -> None:
        self.response_complete = True
        self.disconnected = False
        self.keep_alive = True

    @property
    def message_event(self) -> _Held:
        return self

    def set(self) -> None:
        """Nobody waits for this request's body."""


class BrokerProtocol(HttpToolsProtocol):
    """One connection; arguments as uvicorn gives them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app = self.config.loaded_app
        if not isinstance(app, BrokerApp):
            raise TypeError(f"this protocol serves a BrokerApp, not {type(app).__name__}")
        self._at_once = app.send_path.at_once
        self._topic: str | None = None
        self._body = b""
        self._waiting = _Held()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        _data_received(self, data)
        if self._topic is not None:
            # The rest of the body is still to come: a task waits for it, with a deadline.
            self._take_long_way()

    def on_headers_complete(self) -> None:
        """Called by the parser; uvicorn's version starts the request, or queues it behind an earlier one."""
        if self._is_ordinary():
            self._topic = _targets.get(self.url) or _learn(self.url)
        if self._topic is None:
            _on_headers_complete(self)

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self._topic is None:
            _on_body(self, body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a body."""
        topic = self._topic
        if topic is None:
            _on_message_complete(self)
        elif self._at_once(self, topic, self.headers, self._body):
            self._topic = None
            self._body = b""
        else:
            self._take_long_way()
            _on_message_complete(self)

    def wait(self) -> None:
        """Says that the answer comes later: the next request queues until then."""
        waiting = self._waiting
        waiting.response_complete = False
        self.cycle = waiting  # type: ignore[assignment]  # it has what uvicorn asks of a cycle

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

    def _is_ordinary(self) -> bool:
        """Says whether the request is a POST that nothing stands before and nothing special is asked of."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def _take_long_way(self) -> None:
        body, self._topic, self._body = self._body, None, b""
        _on_headers_complete(self)
        if body:
            _on_body(self, body)


def _learn(target: bytes) -> str | None:
    topic = send_topic(target)
    if topic is not None and len(_targets) < _MAX_TARGETS:
        _targets[target] = topic
    return topic


# Looked up once: super() takes longer than some of these do.
_data_received = HttpToolsProtocol.data_received
_on_headers_complete = HttpToolsProtocol.on_headers_complete
_on_body = HttpToolsProtocol.on_body
_on_message_complete = HttpToolsProtocol.on_message_complete
