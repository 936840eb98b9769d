"""/groups/{group}/offsets: a group's committed offsets, and moving it.

Owns the JSON of commits, offers, pages and resets, and which targets a reset may name together.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.broker.groups.offsets import Commit, ResetTarget
from ingest_api.broker.groups.offsets_aside import KeptOffset
from ingest_api.http.schemas import (
    DEFAULT_LIMIT,
    MAX_LONG,
    PROBLEMS,
    CheckedTopic,
    GroupPath,
    Limit,
    PageMark,
    Strict,
)
from store_native.errors import InvalidRequest
from store_native.names import MAY_BE_BEHIND_HEADER

KEPT_ASIDE = "KEPT_ASIDE"
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
    """A group's committed offsets."""

    offsets: list[GroupOffset]


class GroupOffsetsPage(GroupOffsets):
    """A page of a group's committed offsets, by topic and queue."""

    next: str | None


class OffsetCommit(Strict):
    """The offsets to commit; queues left out keep theirs."""

    offsets: Annotated[list[GroupOffset], Field(max_length=100_000)]
    lease_epoch: LeaseEpoch | None = None


class OfferedOffset(GroupOffset):
    """An offset that was committed at a slave while its master was away."""

    topic_id: Annotated[str, Field(max_length=64, description="Of the topic it was committed for.")]
    seen: Annotated[Offset | None, Field(description="What the group had committed then.")] = None


class OffsetOffer(Strict):
    """Offsets that a slave has kept for its master."""

    offsets: Annotated[list[OfferedOffset], Field(max_length=1_000)]


class OffsetReset(Strict):
    """Where to: earliest, latest, a timestamp or offsets; the last two need no ``to``."""

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
    group_offsets = broker.group_offsets

    @routes.get("/groups/{group}/offsets", response_model=GroupOffsetsPage)
    async def get_group_offsets(
        group: GroupPath, response: Response, limit: Limit = DEFAULT_LIMIT, after: PageMark = ""
    ) -> GroupOffsetsPage:
        """Returns a group's committed offsets, by topic and queue, a page at a time."""
        _note_behind(broker, response)
        mark = _place_behind(after)
        rows = sorted(row for row in group_offsets.rows(group) if row[:2] > mark)
        more = f"{rows[limit - 1][0]}:{rows[limit - 1][1]}" if len(rows) > limit else None
        return GroupOffsetsPage(offsets=_offsets(rows[:limit]), next=more)

    @routes.put(
        "/groups/{group}/offsets", response_model=GroupOffsets, responses={202: {"model": GroupOffsets}}
    )
    async def commit_offsets(group: GroupPath, commit: OffsetCommit, response: Response) -> GroupOffsets:
        """Commits a group's offsets; durable when this answers.

        A slave whose master is away keeps them aside (202, KEPT_ASIDE) and offers them to the next master.
        """
        rows = [(o.topic, o.queue_id, o.offset) for o in commit.offsets]
        _note(broker, await group_offsets.commit(group, rows, commit.lease_epoch), response)
        return GroupOffsets(offsets=_offsets(group_offsets.rows(group)))

    @routes.post(
        "/groups/{group}/offsets/offer", response_model=GroupOffsets, responses={202: {"model": GroupOffsets}}
    )
    async def offer_offsets(group: GroupPath, offer: OffsetOffer, response: Response) -> GroupOffsets:
        """Takes what a slave kept while its master was away, where it moves the group on.

        The larger offset wins, unless the group was moved back, or its topic made again, since.
        """
        kept = [KeptOffset(o.topic, o.topic_id, o.queue_id, o.offset, o.seen) for o in offer.offsets]
        _note(broker, await group_offsets.take(group, kept), response)
        return GroupOffsets(offsets=_offsets(group_offsets.rows(group)))

    @routes.post(
        "/groups/{group}/offsets/reset",
        response_model=ResetPlan,
        responses={**PROBLEMS, 202: {"model": ResetPlan}},
    )
    async def reset_offsets(group: GroupPath, reset: OffsetReset, response: Response) -> ResetPlan:
        """Moves a group's offsets at the broker, on one topic.

        With dry_run only says what that would deliver again or skip. A group that lakemq consume has run goes
        on from its checkpoint and ledger instead.
        """
        _note_behind(broker, response)
        plan = await group_offsets.plan_reset(group, _target(reset))
        if not reset.dry_run:
            _note(broker, await group_offsets.reset(group, plan, reset.lease_epoch), response)
        return ResetPlan(
            dry_run=reset.dry_run,
            redelivered=sum(queue.redelivered for queue in plan),
            skipped=sum(queue.skipped for queue in plan),
            queues=[QueueReset.model_validate(queue, from_attributes=True) for queue in plan],
        )


def _target(reset: OffsetReset) -> ResetTarget:
    end = reset.to if reset.to in ("earliest", "latest") else None
    return ResetTarget(reset.topic, end, reset.timestamp, reset.offsets)


def _note_behind(broker: Broker, response: Response) -> None:
    """Says where the group may have committed more than is shown."""
    if broker.replication.offsets_may_be_behind:
        response.headers[MAY_BE_BEHIND_HEADER] = "true"


def _note(broker: Broker, commit: Commit, response: Response) -> None:
    if commit is Commit.FLUSHED:
        return
    response.status_code = 202
    is_kept = commit is Commit.KEPT_ASIDE
    response.headers["X-LakeMQ-Status"] = KEPT_ASIDE if is_kept else broker.pending_status()


def _offsets(rows: list[tuple[str, int, int]]) -> list[GroupOffset]:
    return [GroupOffset.model_construct(topic=t, queue_id=q, offset=offset) for t, q, offset in rows]


def _place_behind(mark: str) -> tuple[str, int]:
    if not mark:
        return "", -1
    topic, colon, queue_id = mark.rpartition(":")
    if not (colon and queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= 10):
        raise InvalidRequest("ARGUMENT_ILLEGAL", "next: is not the mark of a page", parameter="next")
    return topic, int(queue_id)
