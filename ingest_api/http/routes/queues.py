"""/topics/{topic}/queues: the bounds of a topic's queues, and offsets by time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import MAX_LONG, QueueIdPath, TopicPath, noun_router
from store_native.names import MAY_BE_BEHIND_HEADER


class EpochOffset(BaseModel):
    """An epoch of the broker's log, and the first queue offset that it, or a later one, gave."""

    model_config = ConfigDict(from_attributes=True)

    epoch: int
    first_offset: int
    at_or_before: Annotated[
        bool, Field(description="It may have been an earlier offset, which retention has taken.")
    ]


class QueueBounds(BaseModel):
    """min_offset <= offset < confirmed_offset can be read. Of epochs of which the same is told the newest."""

    model_config = ConfigDict(from_attributes=True)

    queue_id: int
    min_offset: int
    max_offset: int
    confirmed_offset: int
    epochs: list[EpochOffset]


class OffsetByTime(BaseModel):
    """Where to begin to read from a time on."""

    offset: int


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("queues")

    @routes.get("/topics/{topic}/queues", response_model=list[QueueBounds])
    async def list_queues(topic: TopicPath, response: Response) -> list[QueueBounds]:
        """Lists the queues of a topic with their offsets."""
        behind = broker.replication.may_be_behind
        found = await broker.lookups.queues(topic)
        if behind or not found.settled:
            response.headers[MAY_BE_BEHIND_HEADER] = "true"
        return [QueueBounds.model_validate(bounds) for bounds in found.queues]

    @routes.get("/topics/{topic}/queues/{queue_id}/offset", response_model=OffsetByTime)
    async def offset_by_time(
        topic: TopicPath, queue_id: QueueIdPath, timestamp: Annotated[int, Query(ge=0, le=MAX_LONG)]
    ) -> OffsetByTime:
        """Returns the first offset stored at or after a time (epoch ms); the maximum when there is none."""
        return OffsetByTime(offset=await broker.lookups.offset_by_time(topic, queue_id, timestamp))

    return routes
