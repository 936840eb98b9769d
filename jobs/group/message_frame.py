"""A batch of messages as a DataFrame, for a function of DataFrames.

Owns its columns: those a handler of batches sees, and whether a message failed by itself before.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BooleanType, IntegerType, StructType

from jobs.frames.evaluation import ISOLATED
from jobs.group.handled_messages import as_handled, without_repeats
from jobs.group.slice_tasks import source_schema
from jobs.redelivery.counted_attempts import attempt_counts
from jobs.redelivery.original_position import original_positions


def message_schema() -> StructType:
    """The columns of a message that a function sees, as Spark types."""
    return source_schema().add("attempt", IntegerType())


def task_schema() -> str:
    """The columns that `MessageTask` yields, as DDL."""
    return message_schema().add(ISOLATED, BooleanType()).toDDL()


@dataclass(frozen=True)
class MessageTask:
    """From what is read to what a function sees."""

    group: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the messages of one task."""
        seen: set[tuple[str, int]] = set()
        for batch in batches:
            fresh = without_repeats(batch, self.group, seen)
            if fresh.num_rows == 0:
                continue
            positions = original_positions(fresh, self.group)
            isolated = attempt_counts(fresh, positions, self.group).isolated
            messages = as_handled(fresh, positions)
            yield pa.RecordBatch.from_arrays(
                [*messages.columns, isolated], names=[*messages.schema.names, ISOLATED]
            )
