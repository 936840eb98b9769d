"""Rows of a table that Spark's tasks make, before anybody has asked for them.

Owns what a ledger may do with them: have them as a frame, or have each task do more with its own.

Invariants: none is made before; making them may have effects (handlers run), so it is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From some of a task's batches to others, as `mapInArrow` calls it."""


class TaskRows(Protocol):
    """Rows that tasks make; some columns of a table."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns, in order."""

    def frame(self) -> DataFrame:
        """The rows as a frame, which makes them when an action runs."""

    def through(self, task: Callable[[ArrowFunction], ArrowFunction], ddl: str) -> DataFrame:
        """A frame of what is made of the rows where they are made.

        Args:
            task: from what makes a task's rows to what makes its part of the frame.
            ddl: the frame's columns.
        """
