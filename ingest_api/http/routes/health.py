"""/healthz and /readyz: alive, and serving."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import PROBLEMS


class Alive(BaseModel):
    """The event loop answers."""

    status: str


class ReadySlave(BaseModel, from_attributes=True):
    """A slave that follows, and how far it is behind."""

    broker_id: int | None
    lag_bytes: int
    lag_s: float | None
    bytes_per_s: float


class ReadyReplication(BaseModel):
    """What the broker is to the others of its name; `/replication` has more."""

    role: str
    epoch: int
    in_reach: Annotated[bool, Field(description="Whether enough slaves can have a message soon.")]
    following: Annotated[bool, Field(description="Whether a slave follows its master.")]
    lag_bytes: Annotated[int | None, Field(description="What a slave lacks of its master's log.")]
    slaves: list[ReadySlave]


class Ready(BaseModel):
    """The store is open and serves.

    ``recovery`` says what opening it had to do. A broker is ready whatever ``replication`` says: a slave
    without a master serves reads, and a master without its slaves answers what it does not promise.
    """

    status: str
    flush: str
    recovery: dict[str, Any]
    replication: ReadyReplication


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
        status = broker.replication.status()
        return Ready(
            status="ready",
            flush=broker.settings.store.flush,
            recovery=broker.recovery,
            replication=ReadyReplication.model_validate(status, from_attributes=True),
        )

    return routes
