"""Rows of a batch that an operator gave up, and their outcomes beside those of the others.

Owns which rows they are, and when one of a lane is given up.

Invariants: each has one outcome, as any other row: DEAD with who gave it up and why; PARKED where its lane
did not come to it, so that it is given up when its turn has come. Pure.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import DEAD, PARKED, RETRY
from jobs.handler import reasons
from jobs.handler.call_order import CallOrder
from jobs.handler.results import HandlerResults, by_rows, with_outcomes
from jobs.handler.verdicts import Outcome
from jobs.redelivery.original_position import Positions


class Skip(NamedTuple):
    """A message that is given up, by its original position, and the reason of its row."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    reason: str


@dataclass(frozen=True)
class Skips:
    """What a batch skips."""

    messages: frozenset[Skip] = frozenset()

    def among(self, positions: Positions) -> dict[int, str]:
        """The rows that are given up, with their reasons."""
        if not self.messages:
            return {}
        near = pc.indices_nonzero(pc.is_in(positions.queue_offset, value_set=self._offsets))
        at = positions.take(near)
        keys = zip(
            *(column.to_pylist() for column in (at.topic, at.broker_name, at.queue_id, at.queue_offset)),
            strict=True,
        )
        found = ((row, self._reasons.get(key)) for row, key in zip(near.to_pylist(), keys, strict=True))
        return {row: reason for row, reason in found if reason is not None}

    @cached_property
    def _reasons(self) -> dict[tuple[str, str, int, int], str]:
        return {skip[:4]: skip.reason for skip in sorted(self.messages)}

    @cached_property
    def _offsets(self) -> pa.Array:
        return pa.array([skip.queue_offset for skip in self.messages], pa.int64())


NO_SKIPS = Skips()


def beside_skipped(
    called: HandlerResults | None,
    rows: Sequence[int],
    skipped: Mapping[int, str],
    order: CallOrder | None,
) -> HandlerResults:
    """Joins the results of a batch's rows.

    Args:
        called: of the rows that the handler was called for; None where there is none.
        rows: these rows.
        skipped: the others, with their reasons.
        order: the lanes of all of them, in orderly mode.

    Returns:
        One verdict per row of the batch, in its order.
    """
    reached = skipped.keys() if order is None else _reached(called, rows, skipped, order)
    now = time.time_ns() // 1_000
    given_up = {
        place: Outcome(DEAD, reason=reasons.reason_text(reason)) if row in reached else Outcome(PARKED)
        for place, (row, reason) in enumerate(skipped.items())
    }
    began = [now if row in reached else None for row in skipped]
    own = with_outcomes(len(skipped), began, [now] * len(skipped), given_up)
    beside = [] if called is None else [(rows, called)]
    return by_rows([*beside, (list(skipped), own)])


def _reached(
    called: HandlerResults | None, rows: Sequence[int], skipped: Mapping[int, str], order: CallOrder
) -> Collection[int]:
    """The rows that are given up and before which nothing of their lane has to come again."""
    stopping = set() if called is None else _stopping(called, rows, order)
    reached: set[int] = set()
    for lane in order.lanes:
        for row in lane:
            if row in stopping:
                break
            if row in skipped:
                reached.add(row)
    return reached


def _stopping(called: HandlerResults, rows: Sequence[int], order: CallOrder) -> set[int]:
    """The rows whose lane does not go on behind them."""
    if called.verdict is None:
        return set()
    in_company = [False] * called.rows if called.in_company is None else called.in_company.to_pylist()
    said = zip(rows, called.verdict.to_pylist(), in_company, strict=True)
    return {
        row
        for row, verdict, not_counted in said
        if verdict == PARKED or (verdict == RETRY and (not_counted or row not in order.given_up))
    }
