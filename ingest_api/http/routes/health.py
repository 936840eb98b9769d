"""/healthz and /readyz: alive, and serving."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import PROBLEMS
from store_native.errors import Closed, Unavailable


class Alive(BaseModel):
    """The event loop answers."""

    status: str


class Ready(BaseModel):
    """The store is open and takes messages.

    ``recovery`` says what opening it had to do.
    """

    status: str
    flush: str
    recovery: dict[str, Any]


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = APIRouter(tags=["health"], responses=PROBLEMS)

    @routes.get("/healthz", response_model=Alive)
    async def healthz() -> Alive:
        """Says that the process is alive; restart it when this fails."""
        return Alive(status="alive")

    @routes.get("/readyz", response_model=Ready)
    async def readyz() -> Ready:
        """Says that the broker has recovered and serves; send no traffic while this fails."""
        if reason := broker.store.poisoned:
            raise Closed("STORE_POISONED", f"the store takes no more messages: {reason}")
        if reason := broker.store.dispatch_failure:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"stored messages cannot be read: {reason}")
        if broker.admission.closing:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "the broker is stopping")
        return Ready(status="ready", flush=broker.settings.store.flush, recovery=dict(broker.store.recovery))

    return routes
