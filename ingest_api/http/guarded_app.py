"""FastAPI behind this package's own server: what every process with a front door needs.

Owns the path of an administrative request: its body is read within bounds, FastAPI routes it, and what came
of it is in the access log.

Invariants: every error becomes a problem, and a body has an end in size and time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.http.connection.watch import ConnectionWatch
from ingest_api.http.messages.targets import API
from ingest_api.http.request.body import Body, BodyReader, ClientGone
from ingest_api.http.request.guard import RequestGuard
from ingest_api.http.responses import problems
from ingest_api.http.responses.allowed_methods import allowed_methods
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.version import lakemq_version

RawHeaders = list[tuple[bytes, bytes]]


class GuardedApp(FastAPI):
    """FastAPI with bounded bodies and problems.

    Args:
        title: Of its document.
        watch: Its connections.
        scheme: ``https`` where they speak TLS, else ``http``.
        errors: How it refuses.
        control_bodies: Reads the bodies of administrative requests.
        metrics: Counts.
        stop: Run once, after the last request.
    """

    def __init__(
        self,
        title: str,
        *,
        watch: ConnectionWatch,
        scheme: str,
        errors: ErrorResponses,
        control_bodies: BodyReader,
        metrics: BrokerMetrics,
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            await stop()

        super().__init__(
            title=title,
            summary="RocketMQ's broker model over HTTP.",
            version=lakemq_version(),
            openapi_url=f"{API}/openapi.json",
            docs_url=None,  # routes/docs.py serves a page that loads nothing from elsewhere
            redoc_url=None,
            redirect_slashes=False,
            lifespan=lifespan,
            generate_unique_id_function=lambda route: route.name,
        )
        self.errors = errors
        self.watch = watch
        self.guard = RequestGuard(watch.settings, scheme)
        self._control_bodies = control_bodies
        self._metrics = metrics
        problems.install(self, metrics)

    def fast_path(self, connection: Any, topic: str, headers: RawHeaders, data: bytes) -> bool:
        """Answers a send that arrived whole, without a task; False: the request takes the slow path."""
        return False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]  # awaited alike
        """Hands a request on."""
        if scope["type"] != "http":
            return super().__call__(scope, receive, send)
        return self._control(scope, receive, send)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves what FastAPI routes: reads the body first, within its bounds."""
        if scope["method"] == "HEAD":
            # The server leaves the body out; to everybody else it is a GET.
            scope = {**scope, "method": "GET"}
        elif scope["method"] == "OPTIONS":
            await self._say_methods(scope, receive, send)
            return
        started = time.perf_counter()
        body = Body()
        status, request_id = 500, None
        try:
            if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
                await self._control_bodies.read(receive, _content_length(scope), body)
            else:
                body.complete = True
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last frame: every error becomes an answer here
            await self.errors.respond(error, scope, receive, send, body)
            return
        finally:
            self._control_bodies.release(body)

        async def replay() -> Message:
            if body.chunks or not replayed:
                replayed.append(True)
                data = b"".join(body.chunks)
                body.chunks.clear()
                return {"type": "http.request", "body": data, "more_body": False}
            return await receive()

        async def watched(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400:
                    request_id = _request_id(message)
            await send(message)

        replayed: list[bool] = []
        # problems has answered and logged it; Starlette raises it once more for its server.
        with suppress(Exception):
            await super().__call__(scope, replay, watched)
        took_ms = (time.perf_counter() - started) * 1000
        self._metrics.latency_ms["admin"].observe(took_ms)
        if status >= 400 and not scope["path"].endswith(("/readyz", "/healthz")):
            code = scope.get(problems.CODE_IN_SCOPE, "REFUSED")
            self.errors.log_line(scope, status, code, request_id, took_ms=round(took_ms))
        else:
            self.errors.log_slow(scope, status, took_ms)

    async def _say_methods(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers OPTIONS; to a page of an allowed origin the server's headers say the rest."""
        allowed = allowed_methods(self.router.routes, scope)
        if not allowed:
            await super().__call__(scope, receive, send)
            return
        headers = [(b"allow", allowed.encode())]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _content_length(scope: Scope) -> int | None:
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def _request_id(start: Message) -> str | None:
    """The id that joins a problem, already rendered, to its log line."""
    return next((value.decode("ascii") for name, value in start["headers"] if name == b"x-request-id"), None)
