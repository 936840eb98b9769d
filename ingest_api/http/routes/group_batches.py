"""/groups/{group}/batches: what a group's job says of each batch, shown by /metrics.

Owns the JSON of a batch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.routes.group_offsets import LeaseEpoch
from ingest_api.http.schemas import MAX_LONG, GroupPath, Strict

Batch = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[\x21-\x7e]+$")]
Verdict = Literal["ACK", "RETRY", "DEAD", "DROPPED"]
MAX_SECONDS = 31_622_400


class HandledBatch(Strict):
    """What came of a batch's messages, and how long it took."""

    messages: dict[Verdict, Annotated[int, Field(ge=0, le=MAX_LONG)]]
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)]
    lease_epoch: LeaseEpoch | None = None


def add(routes: APIRouter, broker: Broker) -> None:
    """Adds the route."""

    @routes.put("/groups/{group}/batches/{batch}", status_code=204, response_class=Response)
    async def count_batch(group: GroupPath, batch: Batch, handled: HandledBatch) -> Response:
        """Counts a batch that a group's job has handled, for /metrics; the same one again counts once."""
        broker.handled_batches.add(
            group, batch, dict(handled.messages.items()), handled.seconds, handled.lease_epoch
        )
        return Response(status_code=204)
