"""The verdicts of a batch, decided before its outcomes are made.

Owns their way from the driver to the tasks, and which verdict is whose. Knows no Spark.

Invariants: what a message's verdict is does not depend on how often or where its outcome is made.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from delta_tables.deliveries import RETRY
from jobs.frames.frame_verdicts import NO_ROW, Key, keys_of
from jobs.handler.results import HandlerResults, concat, with_outcomes
from jobs.handler.verdicts import Outcome


@dataclass(frozen=True)
class DecidedVerdicts:
    """The verdicts of some messages.

    Attributes:
        messages: KEY of each.
        results: their verdicts, in the same order.
    """

    messages: pa.RecordBatch
    results: HandlerResults

    def of(self, batch: pa.RecordBatch) -> HandlerResults:
        """The verdicts of a batch's messages, in its order.

        Args:
            batch: messages as a handler sees them (original position, attempt). One that nothing was
                decided about comes again.
        """
        unknown = self.messages.num_rows
        rows = pa.array([self._where.get(key, unknown) for key in keys_of(batch)], pa.int64())
        return self._with_unknown.take(rows)

    @cached_property
    def _where(self) -> dict[Key, int]:
        return {key: at for at, key in enumerate(keys_of(self.messages))}

    @cached_property
    def _with_unknown(self) -> HandlerResults:
        now = [time.time_ns() // 1_000]
        unknown = with_outcomes(1, now, now, {0: Outcome(RETRY, reason=NO_ROW)})
        return concat([self.results, unknown])
