"""What the lanes of a group wait for: attempts that come back, and messages parked behind them.

Owns that knowledge on the driver, and which parked messages may go on. Pure.

Invariants: it holds what the rows say that it was given, in whatever order they came; a lane's parked message
goes on only where every attempt before it has come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from delta_tables.deliveries import PARKED, RETRY
from jobs.group.orderly.lane import Attempt, Lane

Queue = tuple[str, str, int]


@dataclass(frozen=True)
class LaneRow:
    """What a row of `deliveries` says of its lane.

    Attributes:
        lane: of the message; the sharding key is known only where the verdict is RETRY or PARKED.
        attempt: which attempt.
        verdict: its verdict.
    """

    lane: Lane
    attempt: Attempt
    verdict: str


@dataclass(frozen=True)
class Release:
    """What of the lanes goes on in a batch.

    Attributes:
        parked: the messages whose turn may come, by lane.
        before: what each lane waits for, in order: a message behind the first of them that the batch does not
            have waits too.
    """

    parked: Mapping[Lane, Collection[Attempt]] = field(default_factory=dict)
    before: Mapping[Lane, tuple[Attempt, ...]] = field(default_factory=dict)


class WaitingLanes:
    """The lanes of one group that wait for something."""

    def __init__(self) -> None:
        self._returning: dict[Lane, set[Attempt]] = {}
        self._parked: dict[Lane, set[Attempt]] = {}
        self._lanes: dict[tuple[Queue, Attempt], Lane] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, rows: Iterable[LaneRow]) -> int:
        """Takes rows: of the ledger at the start, then of each batch that is committed.

        Returns:
            How many parked messages had their attempt by them.
        """
        rows = list(rows)
        # First what is made, then what waits: a batch has both of one lane.
        gone_on = sum(self._done(row) for row in rows if row.verdict != PARKED)
        for row in rows:
            if row.verdict == PARKED:
                self._waits(row.lane, row.attempt, self._parked)
            elif row.verdict == RETRY:
                following = Attempt(row.attempt.queue_offset, row.attempt.number + 1)
                self._waits(row.lane, following, self._returning)
        return gone_on

    def release(self, arrived: Collection[tuple[Lane, Attempt]], most: int) -> Release:
        """Chooses what goes on.

        Args:
            arrived: attempts that the batch reads from the retry topic.
            most: so many parked messages in the batch; lanes that have had least go first the next time.
        """
        free = {lane: found for lane in self._parked if (found := self._free(lane, arrived))}
        chosen: dict[Lane, list[Attempt]] = {}
        for share in (max(1, most // max(1, len(free))), most):
            for lane, attempts in free.items():
                taken = chosen.get(lane, [])
                more = attempts[len(taken) : len(taken) + min(share, most)]
                most -= len(more)
                if more:
                    chosen[lane] = taken + more
        for lane in chosen:
            self._parked[lane] = self._parked.pop(lane)  # behind the others
        before = {}
        for lane in {*self._returning, *self._parked}:
            left = self._parked.get(lane, set()).difference(chosen.get(lane, ()))
            awaited = {*self._returning.get(lane, ()), *([min(left)] if left else [])}
            if awaited:
                before[lane] = tuple(sorted(awaited))
        return Release(chosen, before)

    @property
    def can_go_on(self) -> bool:
        """Whether a parked message waits for nothing but a batch."""
        return any(self._free(lane, ()) for lane in self._parked)

    def parked_by_queue(self) -> dict[Queue, int]:
        """How many messages of each queue are parked."""
        counts: dict[Queue, int] = {}
        for lane, attempts in self._parked.items():
            counts[lane[:3]] = counts.get(lane[:3], 0) + len(attempts)
        return counts

    def first_parked(self) -> dict[Queue, int]:
        """The first message of each queue that is parked and was never handled, by its offset."""
        firsts: dict[Queue, int] = {}
        for lane, attempts in self._parked.items():
            for offset in (attempt.queue_offset for attempt in attempts if attempt.number == 1):
                firsts[lane[:3]] = min(offset, firsts.get(lane[:3], offset))
        return firsts

    def _free(self, lane: Lane, arrived: Collection[tuple[Lane, Attempt]]) -> list[Attempt]:
        away = [attempt for attempt in self._returning.get(lane, ()) if (lane, attempt) not in arrived]
        first = min(away, default=None)
        return sorted(attempt for attempt in self._parked.get(lane, ()) if first is None or attempt < first)

    def _waits(self, lane: Lane, attempt: Attempt, where: dict[Lane, set[Attempt]]) -> None:
        self._forget(lane[:3], attempt)  # one that came back and is parked now
        where.setdefault(lane, set()).add(attempt)
        self._lanes[lane[:3], attempt] = lane

    def _done(self, row: LaneRow) -> bool:
        """Notes that an attempt was made; says whether it was parked before."""
        lane = self._lanes.get((row.lane[:3], row.attempt))
        was_parked = lane is not None and row.attempt in self._parked.get(lane, ())
        self._forget(row.lane[:3], row.attempt)
        return was_parked

    def _forget(self, queue: Queue, attempt: Attempt) -> None:
        lane = self._lanes.pop((queue, attempt), None)
        if lane is None:
            return
        for where in (self._returning, self._parked):
            there = where.get(lane)
            if there is not None:
                there.discard(attempt)
                if not there:
                    del where[lane]
