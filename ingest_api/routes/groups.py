"""/groups: consumer groups and their configuration. Offsets and leases are in their own modules."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker import Broker
from ingest_api.routes import group_leases, group_offsets
from ingest_api.routes.documents import PENDING, PROBLEMS, GroupPath, Strict, json_answer, pending
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


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = APIRouter(tags=["groups"], responses=PROBLEMS)
    store = broker.store

    @routes.get("/groups", response_model=list[Group])
    async def list_groups() -> Response:
        """Lists all groups."""
        return json_answer(await broker.reads.run(store.groups_json))

    @routes.get("/groups/{group}", response_model=Group)
    async def get_group(group: GroupPath) -> Response:
        """Returns a group."""
        return json_answer(_found(store.group_json(group), group))

    @routes.put("/groups/{group}", response_model=Group, responses=PENDING)
    async def put_group(group: GroupPath, change: GroupChange) -> Response:
        """Creates a group and its retry topic, or changes what is given of it."""
        settled = await broker.settle(await broker.reads.run(_put, store, group, change))
        if not settled:
            return pending()
        broker.refresh_topic(f"%RETRY%{group}")
        return json_answer(_found(store.group_json(group), group))

    @routes.delete("/groups/{group}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_group(group: GroupPath) -> Response:
        """Deletes a group and the offsets it stands at."""
        _found(store.group_json(group), group)
        if not await broker.settle(await broker.reads.run(store.delete_group, group)):
            return pending()
        return Response(status_code=204)

    group_offsets.add(routes, broker)
    group_leases.add(routes, broker)
    return routes


def _put(store: Store, group: str, change: GroupChange) -> int:
    """Lays the change over what is there; the store takes whole configurations."""
    current = store.group_json(group)
    config = {} if current is None else json.loads(current)
    config.pop("group", None)
    return store.put_group(group, json.dumps({**config, **change.model_dump(exclude_none=True)}))


def _found(config: Any, group: str) -> bytes:
    if config is None:
        raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
    return bytes(config)
