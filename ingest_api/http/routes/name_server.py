"""A name server's own routes: /cluster, /healthz and /readyz.

Owns what a name server says of itself: which brokers are registered, and that it answers.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from ha_replicator.nameserver import RouteTables
from ingest_api.http.routes.topic_routes import RouteBroker, broker_of
from ingest_api.http.schemas import PROBLEMS, noun_router
from ingest_api.version import lakemq_version


class RegisteredBrokers(BaseModel):
    """The brokers that live, by name."""

    version: str
    brokers: list[RouteBroker]


class Alive(BaseModel):
    """The event loop answers."""

    status: str


def cluster_router(tables: RouteTables) -> APIRouter:
    """Builds the route of the cluster."""
    routes = noun_router("cluster")

    @routes.get("/cluster", response_model=RegisteredBrokers)
    async def get_cluster() -> RegisteredBrokers:
        """Returns the registered brokers."""
        tables.expire()
        return RegisteredBrokers(
            version=lakemq_version(), brokers=[broker_of(data) for data in tables.brokers()]
        )

    return routes


def health_router() -> APIRouter:
    """Builds the routes of health: a name server that answers is ready."""
    routes = APIRouter(tags=["health"], responses=PROBLEMS)

    @routes.get("/healthz", response_model=Alive)
    async def healthz() -> Alive:
        """Says that the process is alive."""
        return Alive(status="alive")

    @routes.get("/readyz", response_model=Alive)
    async def readyz() -> Alive:
        """Says that it answers; brokers bring what it knows within 30 s of its start."""
        return Alive(status="ready")

    return routes
