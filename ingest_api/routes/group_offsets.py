"""/groups/{group}/offsets: where a group stands, and moving it.

What never breaks: a reset with dry_run changes nothing and says exactly what the reset would do, as
both come from the same plan.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from ingest_api.broker import Broker
from ingest_api.routes.documents import MAX_LONG, PROBLEMS, CheckedTopic, GroupPath, Strict
from store_native import Store
from store_native.errors import InvalidRequest

Offset = Annotated[int, Field(ge=0, le=MAX_LONG)]
QueueId = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]


class GroupOffset(Strict):
    """The next offset a group consumes of a queue."""

    topic: CheckedTopic
    queue_id: QueueId
    offset: Offset


class GroupOffsets(BaseModel):
    """Where a group stands."""

    offsets: list[GroupOffset]


class OffsetCommit(Strict):
    """Where a group stands now; queues left out keep their offsets."""

    offsets: Annotated[list[GroupOffset], Field(max_length=100_000)]
    lease_epoch: Annotated[int, Field(ge=0, le=MAX_LONG, description="Refused when stale.")] | None = None


class OffsetReset(Strict):
    """Where to; exactly one of to, timestamp and offsets."""

    topic: CheckedTopic
    to: Literal["earliest", "latest"] | None = None
    timestamp: Annotated[int, Field(ge=0, le=MAX_LONG, description="Epoch ms.")] | None = None
    offsets: Annotated[dict[QueueId, Offset], Field(description="queue_id -> offset")] | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> OffsetReset:
        if sum(given is not None for given in (self.to, self.timestamp, self.offsets)) != 1:
            raise ValueError("exactly one of to, timestamp and offsets must be given")
        return self


class QueueReset(BaseModel):
    """What the reset does to one queue."""

    topic: str
    queue_id: int
    from_offset: int | None
    to_offset: int
    redelivered: int
    skipped: int


class ResetPlan(BaseModel):
    """What the reset does; with dry_run, would do."""

    dry_run: bool
    redelivered: int
    skipped: int
    queues: list[QueueReset]


def add(routes: APIRouter, broker: Broker) -> None:
    """Adds the routes."""
    store = broker.store

    @routes.get("/groups/{group}/offsets", response_model=GroupOffsets)
    async def get_offsets(group: GroupPath) -> GroupOffsets:
        """Returns where a group stands."""
        return _offsets(store, group)

    @routes.put(
        "/groups/{group}/offsets", response_model=GroupOffsets, responses={202: {"model": GroupOffsets}}
    )
    async def put_offsets(group: GroupPath, commit: OffsetCommit, response: Response) -> GroupOffsets:
        """Commits where a group stands; durable when this answers."""
        if commit.lease_epoch is not None:
            broker.leases.check(group, commit.lease_epoch)
        await _commit(broker, group, [(o.topic, o.queue_id, o.offset) for o in commit.offsets], response)
        return _offsets(store, group)

    @routes.post(
        "/groups/{group}/offsets/reset",
        response_model=ResetPlan,
        responses={**PROBLEMS, 202: {"model": ResetPlan}},
    )
    async def reset_offsets(group: GroupPath, reset: OffsetReset, response: Response) -> ResetPlan:
        """Moves a group on one topic; with dry_run only says what that would deliver again or skip."""
        plan = await broker.reads.run(plan_reset, store, group, reset)
        if not reset.dry_run:
            await _commit(broker, group, [(q.topic, q.queue_id, q.to_offset) for q in plan.queues], response)
        return plan


def plan_reset(store: Store, group: str, reset: OffsetReset) -> ResetPlan:
    """Works out what a reset does to each queue; runs on a worker thread, as time look-ups read the log."""
    stands = {
        queue_id: offset for topic, queue_id, offset in store.group_offsets(group) if topic == reset.topic
    }
    bounds = {queue_id: (low, confirmed) for queue_id, low, _, confirmed in store.queues(reset.topic)}
    if reset.offsets is not None and (unknown := reset.offsets.keys() - bounds.keys()):
        raise InvalidRequest(
            "QUEUE_NOT_EXIST",
            f"{reset.topic} has no queue {min(unknown)}",
            topic=reset.topic,
            pointer=f"/offsets/{min(unknown)}",
        )
    queues = []
    for queue_id, (low, high) in sorted(bounds.items()):
        if reset.offsets is not None:
            if queue_id not in reset.offsets:
                continue
            target = reset.offsets[queue_id]
            if not low <= target <= high:
                raise InvalidRequest(
                    "OFFSET_ILLEGAL",
                    f"queue {queue_id} holds {low} to {high}",
                    pointer=f"/offsets/{queue_id}",
                    min_offset=low,
                    max_offset=high,
                )
        elif reset.timestamp is not None:
            target = store.offset_by_time(reset.topic, queue_id, reset.timestamp)
        else:
            target = low if reset.to == "earliest" else high
        current = stands.get(queue_id)
        # What retention took cannot be delivered again, and a group that never committed repeats nothing.
        reached = current if current is not None else target
        queues.append(
            QueueReset(
                topic=reset.topic,
                queue_id=queue_id,
                from_offset=current,
                to_offset=target,
                redelivered=max(0, min(reached, high) - max(target, low)),
                skipped=max(0, target - max(reached, low)),
            )
        )
    return ResetPlan(
        dry_run=reset.dry_run,
        redelivered=sum(queue.redelivered for queue in queues),
        skipped=sum(queue.skipped for queue in queues),
        queues=queues,
    )


async def _commit(
    broker: Broker, group: str, offsets: list[tuple[str, int, int]], response: Response
) -> None:
    if not await broker.settle(broker.store.commit_offsets(group, offsets)):
        response.status_code = 202
        response.headers["X-LakeMQ-Status"] = "FLUSH_DISK_TIMEOUT"


def _offsets(store: Store, group: str) -> GroupOffsets:
    rows = store.group_offsets(group)
    if not rows and store.group_json(group) is None:
        raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
    return GroupOffsets(
        offsets=[GroupOffset.model_construct(topic=t, queue_id=q, offset=offset) for t, q, offset in rows]
    )
