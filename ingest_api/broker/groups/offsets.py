"""Committed offsets of groups, and moving a group.

Owns commits, and the plan of a reset: by offset, by time, to an end.

Invariants: a dry run changes nothing and says exactly what the reset would do, as both come from the same
plan; while a lease is held, only its epoch moves the group. At a slave whose master is away a group has the
larger of what was committed and what is kept aside.

Threads: the event loop; look-ups by time read the log on the read pool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ingest_api.broker.groups.leases import Leases
from ingest_api.broker.groups.offsets_aside import KeptOffset, OffsetsAside
from ingest_api.broker.mastership import CheckMaster
from ingest_api.broker.thread_pools import ReadPool
from ingest_api.broker.topics import Settle
from store_native import Store
from store_native.errors import InvalidRequest, Unavailable

Row = tuple[str, int, int]
"""Topic, queue id, and the next offset the group consumes there."""


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where a group shall go on one topic: exactly one of the three.

    Attributes:
        end: The oldest or the newest message of each queue.
        timestamp: The first message stored at or after it, epoch ms.
        offsets: Queue id to offset; other queues stay.
    """

    topic: str
    end: Literal["earliest", "latest"] | None = None
    timestamp: int | None = None
    offsets: dict[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuses none or two of the three.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        given = [place for place in (self.end, self.timestamp, self.offsets) if place is not None]
        if len(given) != 1 or self.end not in (None, "earliest", "latest"):
            detail = "a reset goes to one of: end (earliest or latest), a timestamp, offsets"
            raise InvalidRequest("ARGUMENT_ILLEGAL", detail)


@dataclass(frozen=True, slots=True)
class QueueReset:
    """What a reset does to one queue.

    Attributes:
        from_offset: Where the group is; None if it never committed there.
        redelivered: Messages it gets again.
        skipped: Messages it will not get.
    """

    topic: str
    queue_id: int
    from_offset: int | None
    to_offset: int
    redelivered: int
    skipped: int


class Commit(Enum):
    """What became of a commit."""

    FLUSHED = "flushed"
    PENDING = "pending"
    """It is stored, and will be flushed, and be with slaves, where that is asked for."""
    KEPT_ASIDE = "kept aside"
    """This slave, whose master is away, has it on its disk, and offers it to the next master it has."""


class GroupOffsets:
    """Commits and moves offsets.

    Args:
        store: Keeps them.
        leases: Says who may.
        reads: Runs look-ups by time.
        settle: Waits for a change.
        aside: Keeps those that are committed at a slave.
        is_alone: Whether this is a slave whose master is away.
        check_master: Refuses changes where this is a slave.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        reads: ReadPool,
        settle: Settle,
        aside: OffsetsAside,
        is_alone: Callable[[], bool],
        check_master: CheckMaster,
    ) -> None:
        self._store = store
        self._leases = leases
        self._reads = reads
        self._settle = settle
        self._aside = aside
        self._is_alone = is_alone
        self._check_master = check_master

    def rows(self, group: str) -> list[Row]:
        """Returns the committed offsets of a group that exists: a name mistyped is no new group.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST.
        """
        rows = self._store.group_offsets(group)
        if aside := self._aside.of(group):
            moved = {(topic, queue_id): offset for topic, queue_id, offset in self._moving(group, aside)}
            rows = [(*queue, offset) for queue, offset in (self._committed(group) | moved).items()]
        if not rows and self._store.group_json(group) is None:
            raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
        return rows

    async def commit(self, group: str, rows: list[Row], lease_epoch: int | None) -> Commit:
        """Commits offsets; queues left out keep theirs.

        Raises:
            InvalidRequest: LEASE_CONFLICT, TOPIC_NOT_EXIST, QUEUE_NOT_EXIST, OFFSET_ILLEGAL.
            Unavailable: NOT_MASTER, this slave follows its master; SERVICE_NOT_AVAILABLE, its master is away
                and they cannot be kept aside.
        """
        if not self._is_alone():
            self._check_master()
        try:
            return await self._commit(group, rows, lease_epoch)
        except Unavailable:
            if not self._is_alone():
                raise
        committed = {
            (topic, queue_id): offset for topic, queue_id, offset in self._store.group_offsets(group)
        }
        kept = [
            KeptOffset(topic, self._topic_id(topic) or "", queue_id, offset, committed.get((topic, queue_id)))
            for topic, queue_id, offset in rows
        ]
        await self._aside.keep(group, kept)
        return Commit.KEPT_ASIDE

    async def take(self, group: str, kept: Sequence[KeptOffset]) -> Commit:
        """Commits what a slave kept aside, as far as it moves the group on.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST; LEASE_CONFLICT, whoever holds the group knows better.
            Unavailable: NOT_MASTER; what a slave does not know its master may.
        """
        self._check_master()
        if not self._store.group_offsets(group) and self._store.group_json(group) is None:
            raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
        # No other commit comes between this look and the record of what it led to.
        return await self._commit(group, self._moving(group, kept), None)

    async def _commit(self, group: str, rows: list[Row], lease_epoch: int | None) -> Commit:
        self._leases.check(group, lease_epoch)
        settled = await self._settle(self._store.commit_offsets(group, rows))
        return Commit.FLUSHED if settled else Commit.PENDING

    def _moving(self, group: str, kept: Sequence[KeptOffset]) -> list[Row]:
        """What of it moves the group on, in topics and queues that are still there."""
        committed = {
            (topic, queue_id): offset for topic, queue_id, offset in self._store.group_offsets(group)
        }
        ids = {topic: self._topic_id(topic) for topic in {offset.topic for offset in kept}}
        ends = {
            (topic, queue_id): end
            for topic, topic_id in ids.items()
            if topic_id is not None
            for queue_id, _, end, _ in self._store.queues(topic)
        }
        return [
            (offset.topic, offset.queue_id, offset.offset)
            for offset in kept
            if ids[offset.topic] == offset.topic_id
            and offset.offset <= ends.get((offset.topic, offset.queue_id), -1)
            and offset.moves(committed.get((offset.topic, offset.queue_id)))
        ]

    def _committed(self, group: str) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): offset for topic, queue_id, offset in self._store.group_offsets(group)}

    def _topic_id(self, topic: str) -> str | None:
        config = self._store.topic_json(topic)
        return None if config is None else str(json.loads(config)["topic_id"])

    async def plan_reset(self, group: str, target: ResetTarget) -> list[QueueReset]:
        """Works out what a reset would do.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST, TOPIC_NOT_EXIST, QUEUE_NOT_EXIST, OFFSET_ILLEGAL.
        """
        return await self._reads.run(self._plan, group, target)

    async def reset(self, group: str, plan: list[QueueReset], lease_epoch: int | None) -> Commit:
        """Does what a plan says; returns and raises as :meth:`commit`, but nothing is kept aside."""
        self._check_master()
        return await self._commit(group, [(q.topic, q.queue_id, q.to_offset) for q in plan], lease_epoch)

    def _plan(self, group: str, target: ResetTarget) -> list[QueueReset]:
        topic, offsets = target.topic, target.offsets
        committed = {queue_id: offset for name, queue_id, offset in self.rows(group) if name == topic}
        bounds = {queue_id: (low, confirmed) for queue_id, low, _, confirmed in self._store.queues(topic)}
        if offsets is not None and (unknown := offsets.keys() - bounds.keys()):
            raise InvalidRequest(
                "QUEUE_NOT_EXIST",
                f"{topic} has no queue {min(unknown)}",
                topic=topic,
                pointer=f"/offsets/{min(unknown)}",
            )
        plan = []
        for queue_id, (low, high) in sorted(bounds.items()):
            if offsets is not None:
                if queue_id not in offsets:
                    continue
                to_offset = offsets[queue_id]
                if not low <= to_offset <= high:
                    raise InvalidRequest(
                        "OFFSET_ILLEGAL",
                        f"queue {queue_id} holds {low} to {high}",
                        pointer=f"/offsets/{queue_id}",
                        min_offset=low,
                        max_offset=high,
                    )
            elif target.timestamp is not None:
                to_offset = self._store.offset_by_time(topic, queue_id, target.timestamp)
            else:
                to_offset = low if target.end == "earliest" else high
            current = committed.get(queue_id)
            # What retention took cannot be delivered again, and a group that never committed repeats nothing.
            reached = current if current is not None else to_offset
            plan.append(
                QueueReset(
                    topic=topic,
                    queue_id=queue_id,
                    from_offset=current,
                    to_offset=to_offset,
                    redelivered=max(0, min(reached, high) - max(to_offset, low)),
                    skipped=max(0, to_offset - max(reached, low)),
                )
            )
        return plan
