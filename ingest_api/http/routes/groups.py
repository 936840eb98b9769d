"""/groups: consumer groups and their configuration.

Owns the JSON of a group; its offsets, leases and batches are in group_offsets.py, group_leases.py and
group_batches.py.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.routes import group_batches, group_leases, group_offsets
from ingest_api.http.routes.group_offsets import LeaseEpoch
from ingest_api.http.schemas import (
    DEFAULT_LIMIT,
    PENDING,
    Attributes,
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


class GroupChange(Strict):
    """What to set; what is left out keeps its value, or has the default in a new group."""

    retry_max_times: Annotated[int, Field(ge=0, le=1_000)] | None = None
    consume_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    attributes: Attributes | None = None


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
    groups = broker.groups

    @routes.get("/groups", response_model=Groups)
    async def list_groups(limit: Limit = DEFAULT_LIMIT, after: PageMark = "") -> Response:
        """Lists groups by name, a page at a time."""
        return json_answer(page_of("groups", "group", await groups.page(after, limit + 1), limit))

    @routes.get("/groups/{group}", response_model=Group)
    async def get_group(group: GroupPath) -> Response:
        """Returns a group."""
        return json_answer(groups.get(group))

    @routes.put("/groups/{group}", response_model=Group, responses={**PENDING, **created(Group)})
    async def put_group(group: GroupPath, change: GroupChange) -> Response:
        """Creates a group and its retry topic (201), or changes what is given of it (200)."""
        done = await groups.put(group, **change.model_dump())
        if not done.settled:
            return pending(broker.pending_status())
        return json_answer(groups.get(group), 201 if done.is_new else 200)

    @routes.delete("/groups/{group}", status_code=204, response_class=Response, responses=PENDING)
    async def delete_group(
        group: GroupPath, lease_epoch: Annotated[LeaseEpoch | None, Query()] = None
    ) -> Response:
        """Deletes a group and its committed offsets; 409 while a driver holds its lease."""
        done = await groups.delete(group, lease_epoch)
        return Response(status_code=204) if done.settled else pending(broker.pending_status())

    group_offsets.add(routes, broker)
    group_leases.add(routes, broker)
    group_batches.add(routes, broker)
    return routes
