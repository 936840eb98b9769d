"""Builds the FastAPI application around a broker.

Owns the dispatch: produce and pull leave for their raw ASGI functions before Starlette sees them;
everything else gets its body read within bounds and goes on to FastAPI.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from ingest_api.http.front_door import FrontDoor
from ingest_api.http.messages.targets import API, MESSAGES, QUEUES, TOPICS
from ingest_api.http.openapi import document
from ingest_api.http.request.body import Body, ClientGone
from ingest_api.http.request.guard import RequestGuard
from ingest_api.http.responses import problems
from ingest_api.http.responses.allowed_methods import allowed_methods
from ingest_api.http.routes import (
    brokers,
    cluster,
    docs,
    groups,
    health,
    messages,
    metrics,
    queues,
    replication,
    topic_routes,
    topics,
)
from ingest_api.version import lakemq_version
from store_native.errors import InvalidRequest, Unavailable


def create_app(door: FrontDoor) -> BrokerApp:
    """Builds the application of one broker; its shutdown stops the broker."""
    broker = door.broker
    app = BrokerApp(door)
    problems.install(app, broker.metrics)
    for noun in (topics, queues, messages, groups, topic_routes, cluster, brokers, replication):
        app.include_router(noun.router(broker), prefix=API)
    for noun in (health, metrics, docs):
        app.include_router(noun.router(broker))
    return app


class BrokerApp(FastAPI):
    """FastAPI with two doors of its own.

    Args:
        door: What it is made of.
    """

    def __init__(self, door: FrontDoor) -> None:
        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            await door.broker.stop()

        super().__init__(
            title="LakeMQ broker",
            summary="RocketMQ's broker model over HTTP.",
            version=lakemq_version(),
            openapi_url=f"{API}/openapi.json",
            docs_url=None,  # routes/docs.py serves a page that loads nothing from elsewhere
            redoc_url=None,
            redirect_slashes=False,
            lifespan=lifespan,
            generate_unique_id_function=lambda route: route.name,
        )
        self._broker = door.broker
        self._control_bodies = door.control_bodies
        self.send_path = door.send
        self.errors = door.errors
        self.watch = door.connections
        self.guard = RequestGuard(door.settings.http)
        self._pull = door.pull
        self._max_unsent_bytes = door.settings.limits.max_unsent_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]  # awaited alike
        """Hands a request to its door; returns the coroutine instead of awaiting it, which is cheaper."""
        if scope["type"] != "http":
            return super().__call__(scope, receive, send)
        if b"%" in scope["raw_path"] and b"%2f" in scope["raw_path"].lower():
            return self._escaped_slash(scope, receive, send)
        path: str = scope["path"]
        if path.endswith(MESSAGES) and path.startswith(TOPICS):
            inner = path[len(TOPICS) : -len(MESSAGES)]
            if scope["method"] == "POST" and inner and "/" not in inner:
                return self.send_path(scope, receive, send, inner)
            if scope["method"] in ("GET", "HEAD"):
                if self.watch.unsent_bytes > self._max_unsent_bytes:
                    return self._too_much_unsent(scope, receive, send)
                topic, queues_, queue_id = inner.partition(QUEUES)
                if queues_ and topic and queue_id and "/" not in topic and "/" not in queue_id:
                    return self._pull(scope, receive, send, topic, queue_id)
        return self._control(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Returns the document with the raw paths in it; FastAPI calls it once."""
        if self.openapi_schema is None:
            self.openapi_schema = document.completed(super().openapi())
        return self.openapi_schema

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
        self._broker.metrics.latency_ms["admin"].observe(took_ms)
        if status >= 400 and not scope["path"].endswith(("/readyz", "/healthz")):
            code = scope.get(problems.CODE_IN_SCOPE, "REFUSED")
            self.errors.log_line(scope, status, code, request_id, took_ms=round(took_ms))
        else:
            self.errors.log_slow(scope, status, took_ms)

    async def _too_much_unsent(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"{self.watch.unsent_bytes} bytes of answers wait for their clients to read them already"
        error = Unavailable("SYSTEM_BUSY", detail, reason="unsent_bytes")
        self._broker.metrics.turned_away("unsent_bytes")
        await self.errors.respond(error, scope, receive, send, None)

    async def _say_methods(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers OPTIONS; to a page of an allowed origin the server's headers say the rest."""
        allowed = allowed_methods(self.router.routes, scope)
        if not allowed:
            await super().__call__(scope, receive, send)
            return
        headers = [(b"allow", allowed.encode())]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _escaped_slash(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses ``%2F`` in a name.

        The server decodes a path as a whole, so an escaped slash would become a border between
        segments and change the route. Only a client's own message id may hold one; its route takes
        the rest of the path.
        """
        path: str = scope["path"]
        if path.startswith(f"{API}/messages/"):
            await self._control(scope, receive, send)
            return
        code = "GROUP_ILLEGAL" if path.startswith(f"{API}/groups/") else "TOPIC_ILLEGAL"
        error = InvalidRequest(code, "a name has no slash", parameter="path")
        await self.errors.respond(error, scope, receive, send, Body())


def _content_length(scope: Scope) -> int | None:
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def _request_id(start: Message) -> str | None:
    """The id that joins a problem, already rendered, to its log line."""
    return next((value.decode("ascii") for name, value in start["headers"] if name == b"x-request-id"), None)
