"""Which messages of a task may be handled: none before what its lane waits for.

Owns the lanes that are stopped, from piece to piece of a task's messages.

Invariants: a message is let through only when all that its lane waits for and that comes before it was let
through before; what is behind a message that comes again is parked. Each lane's messages come in order.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import PARKED, RETRY
from jobs.group.orderly.lane import Attempt, Lane
from jobs.handler.call_order import CallOrder


@dataclass(frozen=True)
class LaneRules:
    """What the tasks of a batch know of its lanes.

    Attributes:
        before: what each lane waits for, in order.
        parked: messages of the batch that are parked in the ledger: one that goes on waiting needs no row.
    """

    before: Mapping[Lane, tuple[Attempt, ...]] = field(default_factory=dict)
    parked: frozenset[tuple[Lane, Attempt]] = frozenset()


class LaneGate:
    """The lanes of one task.

    Args:
        rules: Of the batch.
    """

    def __init__(self, rules: LaneRules) -> None:
        self._rules = rules
        self._awaited = {lane: list(reversed(attempts)) for lane, attempts in rules.before.items()}
        self._stopped: set[Lane] = set()

    def order(self, rows: Iterable[tuple[Lane, Attempt]], given_up: Collection[int] = ()) -> CallOrder:
        """The order of the calls for some rows; those of a lane that waits are not in it.

        Args:
            rows: the lane and the attempt of each row.
            given_up: rows that cannot come again, see `CallOrder`.
        """
        lanes: dict[Lane, list[int]] = {}
        for row, (lane, attempt) in enumerate(rows):
            if self._lets_through(lane, attempt):
                lanes.setdefault(lane, []).append(row)
        return CallOrder(tuple(map(tuple, lanes.values())), frozenset(given_up))

    def _lets_through(self, lane: Lane, attempt: Attempt) -> bool:
        if lane in self._stopped:
            return False
        awaited = self._awaited.get(lane)
        if awaited and awaited[-1] == attempt:
            awaited.pop()
        elif awaited and awaited[-1] < attempt:
            self._stopped.add(lane)
            return False
        return True

    def close_behind(self, rows: Sequence[tuple[Lane, Attempt]], verdicts: Sequence[str]) -> pa.Array:
        """Stops the lanes of rows that come again or are parked.

        Args:
            rows: the lane and the attempt of each row.
            verdicts: their verdicts.

        Returns:
            Of each row whether it belongs into the ledger: not when it is parked there already.
        """
        self._stopped.update(
            lane for (lane, _), verdict in zip(rows, verdicts, strict=True) if verdict in (RETRY, PARKED)
        )
        known = pa.array([row in self._rules.parked for row in rows], pa.bool_())
        return pc.invert(pc.and_(known, pc.equal(pa.array(verdicts, pa.string()), PARKED)))
