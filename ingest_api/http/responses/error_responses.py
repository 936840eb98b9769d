"""How the raw ASGI paths refuse, and what is written to the access log.

Owns the path of an error to the client when Starlette is not there to carry it, connections that still hold
unread bytes included.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.http.request.body import SMALL, Body, drain_request
from ingest_api.http.responses.problems import Problem, new_request_id, problem_of, unexpected
from ingest_api.http.responses.raw_response import head_of
from store_native.errors import LakeMQError

log = logging.getLogger("lakemq.access")


class ErrorResponses:
    """Answers with problems, and says so in the log within reason.

    Args:
        metrics: Counts each refusal by its code.
        slow_request_ms: A request slower than it gets a line.
    """

    _LINES_A_SECOND = 50

    def __init__(self, metrics: BrokerMetrics, slow_request_ms: int) -> None:
        self._metrics = metrics
        self.slow_request_ms = slow_request_ms
        self._second = 0
        self._lines = 0
        self._left_out = 0

    async def respond(
        self, error: Exception, scope: Scope, receive: Receive, send: Send, body: Body | None
    ) -> None:
        """Answers a request with an error.

        Args:
            error: A LakeMQError, or a defect.
            body: What was read of the request's body; None when it has none.
        """
        request_id = new_request_id()
        path = scope["path"]
        if not isinstance(error, LakeMQError):
            error = unexpected(error, path, request_id)
        problem = problem_of(error, path, request_id)
        self._metrics.refused(problem.code)
        self.log_line(scope, problem.status, problem.code, request_id)
        unread = body is not None and not body.complete
        # The client waits for ``100 Continue``: its body was never sent.
        expects = unread and any(name == b"expect" for name, _ in scope["headers"])
        if unread and not expects and problem.code != "REQUEST_TIMEOUT":
            unread = not await self._take_small_rest(receive, scope)
        await self._send(problem, receive, send, unread, expects)

    def render(self, error: LakeMQError, scope: Scope) -> tuple[bytes, bytes]:
        """Renders the answer to a request whose body was read, counts it and says so in the log.

        Returns:
            The head, without the server's common headers, and the body.
        """
        request_id = new_request_id()
        problem = problem_of(error, scope["path"], request_id)
        self._metrics.refused(problem.code)
        self.log_line(scope, problem.status, problem.code, request_id)
        return head_of(problem.status, problem.headers), problem.body

    def log_slow(self, scope: Scope, status: int, took_ms: float) -> None:
        """Says that a request took long, if it did."""
        if took_ms >= self.slow_request_ms:
            self.log_line(scope, status, "SLOW", None, took_ms=round(took_ms))

    def log_line(self, scope: Scope, status: int, code: str, request_id: str | None, **more: Any) -> None:
        """Writes one access line; at most some a second, so that refusals cannot fill the disk."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._left_out:
                log.warning("access lines left out", extra={"fields": {"count": self._left_out}})
                self._left_out = 0
        self._lines += 1
        if self._lines > self._LINES_A_SECOND:
            self._left_out += 1
            return
        client = scope.get("client")
        fields: Mapping[str, Any] = {
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "code": code,
            **({"request_id": request_id} if request_id else {}),
            **({"client": client[0]} if client else {}),
            **more,
        }
        log.log(logging.WARNING if status >= 500 else logging.INFO, "request", extra={"fields": fields})

    async def _take_small_rest(self, receive: Receive, scope: Scope) -> bool:
        """Takes the rest of a small body, which is on its way already, so that the connection can stay."""
        length = next((int(v) for n, v in scope["headers"] if n == b"content-length"), None)
        return (
            length is not None
            and length <= SMALL
            and await drain_request(receive, timeout_s=0.5, limit=SMALL)
        )

    async def _send(
        self, problem: Problem, receive: Receive, send: Send, unread: bool, expects: bool
    ) -> None:
        headers = [*problem.headers, (b"connection", b"close")] if unread else problem.headers
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        if unread and not expects:
            # The whole answer leaves now; the connection closes once the client had time to read it.
            await send({"type": "http.response.body", "body": problem.body, "more_body": True})
            await drain_request(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await send({"type": "http.response.body", "body": problem.body})
