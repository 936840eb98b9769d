"""A part of a task's messages that is handled by itself.

Owns the choice of its rows among those the task reads.

Invariants: messages are known by their original position and attempt, not by their place: what is read again
may lack some. In an orderly group the lanes stand where the messages before the part have left them.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

from delta_tables.deliveries import ACK, RETRY
from jobs.group.known_attempts import Attempt, attempts
from jobs.group.orderly.lane import lanes_of
from jobs.group.orderly.lane_gate import LaneGate
from jobs.handler.call_order import CallOrder
from jobs.handler.results import HandlerResults, with_outcomes
from jobs.handler.verdicts import NOT_CALLED, worker_died
from jobs.redelivery.original_position import original_positions


@dataclass(frozen=True)
class TaskPart:
    """Which of a task's messages are handled.

    Attributes:
        messages: those that are.
        before: those of the task that were handled before them, in an orderly group.
        coming_again: those among `before` that come again or wait.
        died: their worker died of them: they are not called.
    """

    messages: frozenset[Attempt]
    before: frozenset[Attempt] = frozenset()
    coming_again: frozenset[Attempt] = frozenset()
    died: bool = False

    def of(self, rows: pa.RecordBatch, group: str, gate: LaneGate | None) -> pa.RecordBatch:
        """The rows of the part; moves the lanes past those before it."""
        keys = attempts(rows, group)
        earlier = [place for place, key in enumerate(keys) if key in self.before]
        if gate is not None and earlier:
            passed = rows.take(pa.array(earlier, pa.int64()))
            lanes = lanes_of(passed, original_positions(passed, group))
            gate.order(lanes)
            again = (keys[place] in self.coming_again for place in earlier)
            gate.close_behind(lanes, [RETRY if comes_again else ACK for comes_again in again])
        return rows.filter(pa.array([key in self.messages for key in keys], pa.bool_()))


def died_without_a_call(rows: int, order: CallOrder | None) -> HandlerResults:
    """The results of messages whose worker died of them before; one that its lane holds back is PARKED.

    Args:
        rows: how many there are.
        order: their lanes, in an orderly group.
    """
    now = time.time_ns() // 1_000
    called = set(range(rows) if order is None else order.rows)
    outcomes = {row: worker_died() if row in called else NOT_CALLED for row in range(rows)}
    began = [now if row in called else None for row in range(rows)]
    return with_outcomes(rows, began, [now] * rows, outcomes)
