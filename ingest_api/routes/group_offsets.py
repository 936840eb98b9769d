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
from ingest_api.routes.documents import (
    DEFAULT_LIMIT,
    MAX_LONG,
    PROBLEMS,
    CheckedTopic,
    GroupPath,
    Limit,
    PageMark,
    Strict,
)
from store_native import Store
from store_native.errors import InvalidRequest

Offset = Annotated[int, Field(ge=0, le=MAX_LONG)]
QueueId = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]


LeaseEpoch = Annotated[
    int,
    Field(ge=0, le=MAX_LONG, description="Of the caller's lease; needed while one is held."),
]


class GroupOffset(Strict):
    """The next offset a group consumes of a queue."""

    topic: CheckedTopic
    queue_id: QueueId
    offset: Offset


class GroupOffsets(BaseModel):
    """Where a group stands."""

    offsets: list[GroupOffset]


class GroupOffsetsPage(GroupOffsets):
    """A page of where a group stands, by topic and queue."""

    next: str | None


class OffsetCommit(Strict):
    """Where a group stands now; queues left out keep their offsets."""

    offsets: Annotated[list[GroupOffset], Field(max_length=100_000)]
    lease_epoch: LeaseEpoch | None = None


class OffsetReset(Strict):
    """Where to: earliest, latest, a timestamp or offsets; the last two may stand without ``to``."""

    topic: CheckedTopic
    to: Literal["earliest", "latest", "timestamp", "offsets"] | None = None
    timestamp: Annotated[int, Field(ge=0, le=MAX_LONG, description="Epoch ms.")] | None = None
    offsets: Annotated[dict[QueueId, Offset], Field(description="queue_id -> offset")] | None = None
    dry_run: bool = False
    lease_epoch: LeaseEpoch | None = None

    @model_validator(mode="after")
    def _one_place(self) -> OffsetReset:
        if self.to in ("timestamp", "offsets") and getattr(self, self.to) is None:
            raise ValueError(f"to is {self.to}, which is missing")
        said = None if self.to in ("timestamp", "offsets") else self.to
        if sum(given is not None for given in (said, self.timestamp, self.offsets)) != 1:
            raise ValueError("exactly one of earliest, latest, a timestamp and offsets must be given")
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

    @routes.get("/groups/{group}/offsets", response_model=GroupOffsetsPage)
    async def get_group_offsets(
        group: GroupPath, limit: Limit = DEFAULT_LIMIT, after: PageMark = ""
    ) -> GroupOffsetsPage:
        """Returns where a group stands, by topic and queue, a page at a time."""
        mark = _place_behind(after)
        rows = sorted(row for row in _rows(store, group) if row[:2] > mark)
        more = f"{rows[limit - 1][0]}:{rows[limit - 1][1]}" if len(rows) > limit else None
        return GroupOffsetsPage(offsets=_offsets(rows[:limit]), next=more)

    @routes.put(
        "/groups/{group}/offsets", response_model=GroupOffsets, responses={202: {"model": GroupOffsets}}
    )
    async def commit_offsets(group: GroupPath, commit: OffsetCommit, response: Response) -> GroupOffsets:
        """Commits where a group stands; durable when this answers."""
        broker.leases.check(group, commit.lease_epoch)
        await _commit(broker, group, [(o.topic, o.queue_id, o.offset) for o in commit.offsets], response)
        return GroupOffsets(offsets=_offsets(_rows(store, group)))

    @routes.post(
        "/groups/{group}/offsets/reset",
        response_model=ResetPlan,
        responses={**PROBLEMS, 202: {"model": ResetPlan}},
    )
    async def reset_offsets(group: GroupPath, reset: OffsetReset, response: Response) -> ResetPlan:
        """Moves a group's offsets at the broker, on one topic; with dry_run only says what that would deliver
        again or skip. A group that lakemq consume has run goes on from its checkpoint and ledger instead."""
        plan = await broker.reads.run(plan_reset, store, group, reset)
        if not reset.dry_run:
            broker.leases.check(group, reset.lease_epoch)
            await _commit(broker, group, [(q.topic, q.queue_id, q.to_offset) for q in plan.queues], response)
        return plan


def plan_reset(store: Store, group: str, reset: OffsetReset) -> ResetPlan:
    """Works out what a reset does to each queue; runs on a worker thread, as time look-ups read the log."""
    stands = {queue_id: offset for topic, queue_id, offset in _rows(store, group) if topic == reset.topic}
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


def _rows(store: Store, group: str) -> list[tuple[str, int, int]]:
    """Returns (topic, queue id, offset) of a group that exists: a name mistyped is no new group."""
    rows = store.group_offsets(group)
    if not rows and store.group_json(group) is None:
        raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
    return rows


def _offsets(rows: list[tuple[str, int, int]]) -> list[GroupOffset]:
    return [GroupOffset.model_construct(topic=t, queue_id=q, offset=offset) for t, q, offset in rows]


def _place_behind(mark: str) -> tuple[str, int]:
    if not mark:
        return "", -1
    topic, colon, queue_id = mark.rpartition(":")
    if not (colon and queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= 10):
        raise InvalidRequest("ARGUMENT_ILLEGAL", "next: is not the mark of a page", parameter="next")
    return topic, int(queue_id)
