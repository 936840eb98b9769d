"""/groups/{group}/lease: the right of one driver to move a group.

Owns the JSON of a lease, and the longest time one is given for.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.schemas import GroupPath, Strict

Owner = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$")]
MAX_TTL_MS = 3_600_000


class LeaseRequest(Strict):
    """Who wants the group, and for how long."""

    owner: Owner
    ttl_ms: Annotated[int, Field(ge=1, le=MAX_TTL_MS)]


class Lease(BaseModel):
    """A granted lease. Commits under an older epoch are refused once a newer one is granted."""

    epoch: int
    expires_at: int


def add(routes: APIRouter, broker: Broker) -> None:
    """Adds the routes."""

    @routes.post("/groups/{group}/lease", response_model=Lease)
    async def acquire_lease(group: GroupPath, request: LeaseRequest) -> Lease:
        """Takes the lease, or renews it for its owner; 409 while somebody else holds it."""
        epoch, expires_at = await broker.reads.run(
            broker.leases.acquire, group, request.owner, request.ttl_ms
        )
        return Lease(epoch=epoch, expires_at=expires_at)

    @routes.delete("/groups/{group}/lease", status_code=204, response_class=Response)
    async def release_lease(group: GroupPath, owner: Annotated[Owner, Query()]) -> Response:
        """Gives the lease back, so that the next owner need not wait; nothing happens if it is not yours."""
        broker.leases.release(group, owner)
        return Response(status_code=204)
