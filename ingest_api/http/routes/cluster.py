"""/cluster: who this broker is, and which others are registered with it.

Owns the JSON of that answer.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.routes.topic_routes import RouteBroker, broker_of
from ingest_api.http.schemas import noun_router
from ingest_api.version import lakemq_version
from store_native.names import MAY_BE_BEHIND_HEADER


class Cluster(BaseModel):
    """This broker and its cluster."""

    cluster: str
    broker_name: str
    broker_id: int
    store_id: str
    epoch: int
    version: str
    flush: str
    delay_levels_ms: list[int]
    max_message_bytes: int
    brokers: list[RouteBroker]


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("cluster")

    @routes.get("/cluster", response_model=Cluster)
    async def get_cluster(response: Response) -> Cluster:
        """Returns the broker's name, store id, version, delay levels, largest body; registered brokers."""
        if broker.replication.may_be_behind:
            response.headers[MAY_BE_BEHIND_HEADER] = "true"
        broker.tables.expire()
        return Cluster(
            cluster=broker.settings.cluster,
            broker_name=broker.settings.broker_name,
            broker_id=broker.settings.replication.broker_id,
            store_id=broker.store_id,
            epoch=broker.epoch,
            version=lakemq_version(),
            flush=broker.settings.store.flush,
            delay_levels_ms=broker.delay_levels_ms,
            max_message_bytes=broker.settings.limits.max_message_bytes,
            brokers=[broker_of(data) for data in broker.tables.brokers()],
        )

    return routes
