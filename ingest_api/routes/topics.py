"""/topics: what topics there are, creating, changing and deleting them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker import Broker
from ingest_api.routes.documents import PENDING, PROBLEMS, Strict, TopicPath, json_answer, pending
from store_native.errors import InvalidRequest

MAX_QUEUES = 1_024
QueueNums = Annotated[int, Field(ge=1, le=MAX_QUEUES)]


class TopicChange(Strict):
    """What to set; what is left out keeps its value, or has the default in a new topic."""

    read_queue_nums: QueueNums | None = None
    write_queue_nums: QueueNums | None = None
    perm: Annotated[int, Field(ge=0, le=7, description="Sum of 4 read, 2 write, 1 inherit.")] | None = None
    attributes: dict[str, str] | None = None
    force: Annotated[bool, Field(description="Allows fewer read than write queues.")] = False


class Topic(BaseModel):
    """A topic's configuration."""

    topic: str
    topic_id: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    attributes: dict[str, str]
    system: bool


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = APIRouter(tags=["topics"], responses=PROBLEMS)
    store = broker.store

    @routes.get("/topics", response_model=list[Topic])
    async def list_topics() -> Response:
        """Lists all topics, the system's own included."""
        return json_answer(await broker.reads.run(store.topics_json))

    @routes.get("/topics/{topic}", response_model=Topic)
    async def get_topic(topic: TopicPath) -> Response:
        """Returns a topic."""
        return json_answer(_found(store.topic_json(topic), topic))

    @routes.put("/topics/{topic}", response_model=Topic, responses=PENDING)
    async def put_topic(topic: TopicPath, change: TopicChange) -> Response:
        """Creates a topic, or changes what is given of it."""
        settled = await broker.settle(
            await broker.reads.run(
                store.put_topic,
                topic,
                read_queue_nums=change.read_queue_nums,
                write_queue_nums=change.write_queue_nums,
                perm=change.perm,
                attributes=change.attributes,
                force=change.force,
            )
        )
        if not settled:
            return pending()
        broker.refresh_topic(topic)
        return json_answer(_found(store.topic_json(topic), topic))

    @routes.delete("/topics/{topic}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_topic(topic: TopicPath) -> Response:
        """Deletes a topic; its messages go with retention, a new topic of that name starts empty."""
        _found(store.topic_json(topic), topic)
        if not await broker.settle(await broker.reads.run(store.delete_topic, topic)):
            return pending()
        broker.refresh_topic(topic)
        return Response(status_code=204)

    return routes


def _found(config: Any, topic: str) -> bytes:
    if config is None:
        raise InvalidRequest("TOPIC_NOT_EXIST", f"topic[{topic}] not exist, apply first please!", topic=topic)
    return bytes(config)
