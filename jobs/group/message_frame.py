"""A batch of messages as a DataFrame, for a function of DataFrames.

Owns its columns: those a handler of batches sees, whether a message failed by itself before, and whether it
can come again.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, IntegerType, StructType

from jobs.frames.evaluation import CANNOT_RETURN, ISOLATED
from jobs.group.handled_messages import as_handled, without_repeats
from jobs.group.skips.skipped_rows import NO_SKIPS, Skips
from jobs.group.slice_tasks import source_schema
from jobs.redelivery.counted_attempts import attempt_counts
from jobs.redelivery.original_position import LAST_ATTEMPT, original_positions
from jobs.redelivery.property_limit import leaves_space_for_retry


def message_schema() -> StructType:
    """The columns of a message that a function sees, as Spark types."""
    return source_schema().add("attempt", IntegerType())


def task_schema() -> str:
    """The columns that `MessageTask` yields, as DDL."""
    return message_schema().add(ISOLATED, BooleanType()).add(CANNOT_RETURN, BooleanType()).toDDL()


@dataclass(frozen=True)
class MessageTask:
    """From what is read to what a function sees; without messages that an operator gave up."""

    group: str
    skips: Skips = NO_SKIPS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the messages of one task."""
        seen: set[tuple[str, int]] = set()
        for batch in batches:
            fresh = without_repeats(batch, self.group, seen)
            if fresh.num_rows == 0:
                continue
            positions = original_positions(fresh, self.group)
            skipped = self.skips.among(positions)
            if skipped:
                left = pa.array([row for row in range(fresh.num_rows) if row not in skipped], pa.int64())
                fresh, positions = fresh.take(left), positions.take(left)
            isolated = attempt_counts(fresh, positions, self.group).isolated
            too_large = pc.invert(leaves_space_for_retry(fresh, positions))
            stays = pc.or_(too_large, pc.equal(positions.attempt, LAST_ATTEMPT))
            messages = as_handled(fresh, positions)
            yield pa.RecordBatch.from_arrays(
                [*messages.columns, isolated, stays],
                names=[*messages.schema.names, ISOLATED, CANNOT_RETURN],
            )
