"""/metrics: Prometheus text.

Owns the answer's type and that it is collected off the event loop; prometheus.py has the metrics.

Threads: the event loop and a reading thread.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.prometheus import metrics_registry
from ingest_api.http.schemas import PROBLEMS

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}
}


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = APIRouter(tags=["metrics"], responses=PROBLEMS)
    registry = metrics_registry(broker)

    @routes.get("/metrics", response_class=Response, responses={**PROBLEMS, **_TEXT})
    async def get_metrics() -> Response:
        """Returns all metrics: RocketMQ 5's names and labels under lakemq_."""
        page = await broker.reads.run(generate_latest, registry)
        return Response(page, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return routes
