"""/topics: what topics there are, creating, changing and deleting them.

Owns the JSON of a topic, and the bounds of what a change may ask for.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import (
    DEFAULT_LIMIT,
    MAX_LONG,
    PENDING,
    Attributes,
    Limit,
    OrderConfText,
    PageMark,
    Strict,
    TopicPath,
    created,
    json_answer,
    noun_router,
    page_of,
    pending,
)
from store_native.names import PERM_ALL

MAX_QUEUES = 1_024
Perm = Annotated[int, Field(ge=0, le=PERM_ALL, description="Sum of 4 read, 2 write, 1 inherit.")]
QueueNums = Annotated[int, Field(ge=1, le=MAX_QUEUES)]


class TopicChange(Strict):
    """What to set; what is left out keeps its value, or has the default in a new topic."""

    read_queue_nums: QueueNums | None = None
    write_queue_nums: QueueNums | None = None
    perm: Perm | None = None
    attributes: Attributes | None = None
    order_conf: Annotated[
        OrderConfText | None,
        Field(description="The queues that sharding keys are spread over; it makes the topic ordered."),
    ] = None
    order_conf_before: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_LONG,
            description="With order_conf: the version of the newest list that is known, 0 for none. Where "
            "the broker has a newer one, the change is refused: another one came between.",
        ),
    ] = None
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
    topics = broker.topics

    @routes.get("/topics", response_model=Topics)
    async def list_topics(limit: Limit = DEFAULT_LIMIT, after: PageMark = "") -> Response:
        """Lists topics by name, the system's own included, a page at a time."""
        return json_answer(page_of("topics", "topic", await topics.page(after, limit + 1), limit))

    @routes.get("/topics/{topic}", response_model=Topic)
    async def get_topic(topic: TopicPath) -> Response:
        """Returns a topic."""
        return json_answer(topics.get(topic))

    @routes.put("/topics/{topic}", response_model=Topic, responses={**PENDING, **created(Topic)})
    async def put_topic(topic: TopicPath, change: TopicChange) -> Response:
        """Creates a topic (201), or changes what is given of it (200)."""
        given = change.model_dump(exclude={"order_conf"})
        order_conf = None if change.order_conf is None else change.order_conf.parsed()
        done = await topics.put(topic, **given, order_conf=order_conf)
        if not done.settled:
            return pending(broker.pending_status())
        return json_answer(topics.get(topic), 201 if done.is_new else 200)

    @routes.delete("/topics/{topic}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_topic(topic: TopicPath) -> Response:
        """Deletes a topic; its messages go with retention, a new topic of that name starts empty."""
        done = await topics.delete(topic)
        return Response(status_code=204) if done.settled else pending(broker.pending_status())

    return routes
