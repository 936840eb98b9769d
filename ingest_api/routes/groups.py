"""/groups: consumer groups and their configuration. Offsets and leases are in their own modules."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker import Broker
from ingest_api.routes import group_leases, group_offsets
from ingest_api.routes.documents import (
    DEFAULT_LIMIT,
    PENDING,
    GroupPath,
    Limit,
    PageMark,
    Strict,
    created,
    json_answer,
    noun_router,
    page_of,
    pending,
)
from store_native import Store
from store_native.errors import InvalidRequest


class GroupChange(Strict):
    """What to set; what is left out keeps its value, or has the default in a new group."""

    retry_max_times: Annotated[int, Field(ge=0, le=1_000)] | None = None
    consume_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    attributes: dict[str, str] | None = None


class Group(BaseModel):
    """A group's configuration."""

    group: str
    retry_max_times: int
    consume_enable: bool
    consume_broadcast_enable: bool
    attributes: dict[str, str]


class Groups(BaseModel):
    """A page of groups, by name."""

    groups: list[Group]
    next: str | None


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("groups")
    store = broker.store

    @routes.get("/groups", response_model=Groups)
    async def list_groups(limit: Limit = DEFAULT_LIMIT, after: PageMark = "") -> Response:
        """Lists groups by name, a page at a time."""
        found = await broker.reads.run(store.groups_json, after, limit + 1)
        return json_answer(page_of("groups", "group", found, limit))

    @routes.get("/groups/{group}", response_model=Group)
    async def get_group(group: GroupPath) -> Response:
        """Returns a group."""
        return json_answer(_found(store.group_json(group), group))

    @routes.put("/groups/{group}", response_model=Group, responses={**PENDING, **created(Group)})
    async def put_group(group: GroupPath, change: GroupChange) -> Response:
        """Creates a group and its retry topic (201), or changes what is given of it (200)."""
        is_new, end_offset = await broker.reads.run(_put, store, group, change)
        if not await broker.settle(end_offset):
            return pending()
        broker.refresh_topic(f"%RETRY%{group}")
        return json_answer(_found(store.group_json(group), group), 201 if is_new else 200)

    @routes.delete("/groups/{group}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_group(group: GroupPath) -> Response:
        """Deletes a group and the offsets it stands at."""
        _found(store.group_json(group), group)
        if not await broker.settle(await broker.reads.run(store.delete_group, group)):
            return pending()
        broker.metrics.forget_group(group)
        return Response(status_code=204)

    group_offsets.add(routes, broker)
    group_leases.add(routes, broker)
    return routes


def _put(store: Store, group: str, change: GroupChange) -> tuple[bool, int]:
    """Lays the change over what is there, as the store takes whole configurations; returns whether the
    group is new, and the offset to wait for."""
    current = store.group_json(group)
    config = {} if current is None else json.loads(current)
    config.pop("group", None)
    changed = json.dumps({**config, **change.model_dump(exclude_none=True)})
    return current is None, store.put_group(group, changed)


def _found(config: Any, group: str) -> bytes:
    if config is None:
        raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
    return bytes(config)
