"""A function of DataFrames applied to a batch of messages.

Owns the actions of Spark that this takes: one for the messages, and one for each application of the function.

Invariants: one verdict per message; each is of one action, so a function that does not say the same twice
contradicts itself nowhere; where the function fails it is applied to parts of the batch, as a handler of
batches is (narrowing.py).

Processes: the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.frames.frame_handler import KEY, FrameHandler
from jobs.frames.frame_verdicts import frame_verdicts
from jobs.frames.spark_failure import failure_of
from jobs.handler.batch_calls import Before, Made, handle_batch
from jobs.handler.narrowing import Call, Said
from jobs.handler.results import with_outcomes
from jobs.redelivery.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ISOLATED = "lakemq_isolated"
"""Whether a message failed by itself before; not for the function's eyes."""
CANNOT_RETURN = "lakemq_cannot_return"
"""Whether a message cannot be retried at all, and must be decided about now; not for the function's eyes."""
_ROW = "lakemq_row"


class FrameEvaluation:
    """Applies a function to batches."""

    def __init__(
        self, handler: FrameHandler, policy: RetryPolicy, is_given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Prepares it.

        Args:
            handler: the function.
            policy: for delays a verdict names.
            is_given_up: whether the batch was given up; what fails then is the end of its actions.
        """
        self._handler = handler
        self._policy = policy
        self._is_given_up = is_given_up

    def decide(self, messages: DataFrame) -> DecidedVerdicts:
        """Finds the verdict of each message.

        Args:
            messages: the batch as a handler sees it, ISOLATED and CANNOT_RETURN. It is evaluated once, unless
                Spark loses what it keeps of it.
        """
        from pyspark.sql.functions import monotonically_increasing_id

        numbered = messages.withColumn(_ROW, monotonically_increasing_id()).persist()
        try:
            batch = _joined(numbered.select(*KEY, ISOLATED, CANNOT_RETURN, _ROW).toArrow().sort_by(_ROW))
            if batch.num_rows == 0:
                return DecidedVerdicts(batch, with_outcomes(0, [], [], {}))
            isolated, stays = (batch.column(name).to_pylist() for name in (ISOLATED, CANNOT_RETURN))
            # Each call is an action of Spark: what comes again is not cut into small calls beforehand, and
            # no row gets a call of its own for a verdict that the frame's own row says.
            before = Before([False] * len(isolated), isolated, lambda row: False, stays.__getitem__)
            results = handle_batch(batch, partial(self._call, numbered), before)
        finally:
            numbered.unpersist()
        return DecidedVerdicts(batch.select(list(KEY)), results)

    def _call(self, numbered: DataFrame, piece: pa.RecordBatch) -> Call[Made]:
        """Applies the function to consecutive messages; what it raises is the call's result."""
        rows = pc.min_max(piece.column(_ROW)).as_py()
        part = numbered.where(f"{_ROW} BETWEEN {rows['min']} AND {rows['max']}").drop(
            ISOLATED, CANNOT_RETURN, _ROW
        )
        started = _now_us()
        try:
            found = self._handler.verdict_rows(part).toArrow()
            verdicts = frame_verdicts(found, piece, self._policy)
        except BaseException as error:
            if self._is_given_up():
                raise
            return Call(Made(started, _now_us(), {}, failure_of(error)), Said.RAISED)
        return Call(Made(started, _now_us(), verdicts), Said.VERDICTS)


def _joined(table: pa.Table) -> pa.RecordBatch:
    names = table.schema.names
    return pa.RecordBatch.from_arrays([table.column(name).combine_chunks() for name in names], names=names)


def _now_us() -> int:
    return time.time_ns() // 1_000
