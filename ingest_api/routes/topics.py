"""/topics: what topics there are, creating, changing and deleting them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker import Broker
from ingest_api.routes.documents import (
    DEFAULT_LIMIT,
    PENDING,
    Limit,
    PageMark,
    Strict,
    TopicPath,
    created,
    json_answer,
    noun_router,
    page_of,
    pending,
)
from store_native import Store
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


class Topics(BaseModel):
    """A page of topics, by name."""

    topics: list[Topic]
    next: str | None


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("topics")
    store = broker.store

    @routes.get("/topics", response_model=Topics)
    async def list_topics(limit: Limit = DEFAULT_LIMIT, after: PageMark = "") -> Response:
        """Lists topics by name, the system's own included, a page at a time."""
        found = await broker.reads.run(store.topics_json, after, limit + 1)
        return json_answer(page_of("topics", "topic", found, limit))

    @routes.get("/topics/{topic}", response_model=Topic)
    async def get_topic(topic: TopicPath) -> Response:
        """Returns a topic."""
        return json_answer(_found(store.topic_json(topic), topic))

    @routes.put("/topics/{topic}", response_model=Topic, responses={**PENDING, **created(Topic)})
    async def put_topic(topic: TopicPath, change: TopicChange) -> Response:
        """Creates a topic (201), or changes what is given of it (200)."""
        is_new, end_offset = await broker.reads.run(_put, store, topic, change)
        if not await broker.settle(end_offset):
            return pending()
        broker.refresh_topic(topic)
        return json_answer(_found(store.topic_json(topic), topic), 201 if is_new else 200)

    @routes.delete("/topics/{topic}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_topic(topic: TopicPath) -> Response:
        """Deletes a topic; its messages go with retention, a new topic of that name starts empty."""
        _found(store.topic_json(topic), topic)
        if not await broker.settle(await broker.reads.run(store.delete_topic, topic)):
            return pending()
        broker.refresh_topic(topic)
        broker.metrics.forget_topic(topic)
        return Response(status_code=204)

    return routes


def _put(store: Store, topic: str, change: TopicChange) -> tuple[bool, int]:
    """Returns whether the topic is new, and the offset to wait for."""
    is_new = store.topic_json(topic) is None
    end_offset = store.put_topic(
        topic,
        read_queue_nums=change.read_queue_nums,
        write_queue_nums=change.write_queue_nums,
        perm=change.perm,
        attributes=change.attributes,
        force=change.force,
    )
    return is_new, end_offset


def _found(config: Any, topic: str) -> bytes:
    if config is None:
        raise InvalidRequest("TOPIC_NOT_EXIST", f"topic[{topic}] not exist, apply first please!", topic=topic)
    return bytes(config)
