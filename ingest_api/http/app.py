"""Builds the FastAPI application around a broker.

Owns the dispatch: produce and pull leave for their raw ASGI functions before Starlette sees them;
everything else is an administrative request, as guarded_app.py serves it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from ingest_api.http.front_door import FrontDoor
from ingest_api.http.guarded_app import GuardedApp
from ingest_api.http.messages.targets import API, MESSAGES, QUEUES, TOPICS
from ingest_api.http.openapi import document
from ingest_api.http.request.body import Body
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
from store_native.errors import InvalidRequest, Unavailable
from store_native.names import LOG_PARTED_HEADER

_PARTED = (LOG_PARTED_HEADER.lower().encode(), b"true")


def create_app(door: FrontDoor) -> BrokerApp:
    """Builds the application of one broker; its shutdown stops the broker."""
    broker = door.broker
    app = BrokerApp(door)
    for noun in (topics, queues, messages, groups, cluster, replication):
        app.include_router(noun.router(broker), prefix=API)
    app.include_router(topic_routes.router(broker.tables, broker.topics.refresh), prefix=API)
    app.include_router(brokers.router(broker.name_server), prefix=API)
    for noun in (health, metrics, docs):
        app.include_router(noun.router(broker))
    return app


class BrokerApp(GuardedApp):
    """The application of a broker, with two doors of its own.

    Args:
        door: What it is made of.
    """

    def __init__(self, door: FrontDoor) -> None:
        super().__init__(
            "LakeMQ broker",
            watch=door.connections,
            scheme=door.scheme,
            errors=door.errors,
            control_bodies=door.control_bodies,
            metrics=door.broker.metrics,
            stop=door.broker.stop,
        )
        self._broker = door.broker
        self.send_path = door.send
        self.fast_path = door.send.fast_path  # type: ignore[method-assign]  # one call less for each send
        self._pull = door.pull
        self._max_unsent_bytes = door.settings.limits.max_unsent_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]  # awaited alike
        """Hands a request to its door; returns the coroutine instead of awaiting it, which is cheaper."""
        if scope["type"] != "http":
            return super().__call__(scope, receive, send)
        if self._broker.replication.log_parted is not None:
            send = _marked(send)
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

    async def _too_much_unsent(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"{self.watch.unsent_bytes} bytes of answers wait for their clients to read them already"
        error = Unavailable("SYSTEM_BUSY", detail, reason="unsent_bytes")
        self._broker.metrics.turned_away("unsent_bytes")
        await self.errors.respond(error, scope, receive, send, None)

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


def _marked(send: Send) -> Send:
    """Answers of a slave whose log is not its master's say so, all of them."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], _PARTED]}
        await send(message)

    return marked
