"""/healthz and /readyz: alive, and serving."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import PROBLEMS


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
        broker.check_ready()
        return Ready(status="ready", flush=broker.settings.store.flush, recovery=broker.recovery)

    return routes
