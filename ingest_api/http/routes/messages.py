"""/messages and /topics/{topic}/messages: single messages by id and by key."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import (
    MAX_LONG,
    PROBLEMS,
    CheckedTopic,
    TopicPath,
    json_answer,
    noun_router,
    ref,
)

_ONE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": ref("Message")}}, "description": "The message."}
}
_MANY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Newest last.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["messages"],
                    "properties": {"messages": {"type": "array", "items": ref("Message")}},
                }
            }
        },
    }
}


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("messages")

    @routes.get("/messages/{message_id:path}", response_class=Response, responses={**PROBLEMS, **_ONE})
    async def get_message(
        message_id: Annotated[str, Path(max_length=255)],
        topic: Annotated[CheckedTopic | None, Query(description="Where to look for a message_id.")] = None,
    ) -> Response:
        """Returns a message by its message_id or offset_message_id."""
        return json_answer(await broker.lookups.message(message_id, topic))

    @routes.get("/topics/{topic}/messages", response_class=Response, responses={**PROBLEMS, **_MANY})
    async def query_messages(
        topic: TopicPath,
        key: Annotated[str, Query(min_length=1)],
        begin: Annotated[int, Query(ge=0, le=MAX_LONG)] = 0,
        end: Annotated[int, Query(ge=0, le=MAX_LONG)] = MAX_LONG,
        max_messages: Annotated[int, Query(alias="max", ge=1, le=10_000)] = 32,
    ) -> Response:
        """Finds messages by key (or message_id), stored from begin to end (epoch ms)."""
        found = await broker.lookups.messages_by_key(topic, key, begin, end, max_messages)
        return json_answer(b'{"messages":%s}' % found)

    return routes
