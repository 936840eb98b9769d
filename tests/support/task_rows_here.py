"""Rows that tasks make, without Spark: for tests of the appends of their files.

Owns such rows, and an append of them to a ledger's `deliveries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_rows_once
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.task_rows import ArrowFunction


class AskedSparkError(Exception):
    """The ledger would have Spark write."""


class NoSpark:
    """A session that is not to be asked."""

    def createDataFrame(self, rows: Any, schema: Any = None) -> Any:
        raise AskedSparkError


class TaskRowsHere:
    """Rows that two tasks make in this process; `meanwhile` is called once they are made."""

    columns = tuple(name for name in DELIVERIES.column_names if name not in ("outbox", "table_rows"))

    def __init__(self, *tasks: list[dict[str, Any]], meanwhile: Callable[[], None] = lambda: None) -> None:
        self._tasks = tasks
        self._meanwhile = meanwhile
        self.made = 0
        self.framed = False

    def frame(self) -> Any:
        self.framed = True
        raise AskedSparkError

    def through(self, task: Callable[[ArrowFunction], ArrowFunction], ddl: str) -> Any:
        self._task, self._ddl = task, ddl
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        self.made += 1
        found: list[tuple[Any, ...]] = []
        for rows in self._tasks:

            def make(numbers: Iterator[pa.RecordBatch], rows: list[dict[str, Any]] = rows) -> Any:
                yield from pa.Table.from_pylist(rows, schema=DELIVERIES.arrow_schema).to_batches()

            for batch in self._task(make)(iter(())):
                assert [f"{field.name}" for field in batch.schema] == [
                    column.split()[0] for column in self._ddl.split(", ")
                ]
                found += [tuple(row.values()) for row in batch.to_pylist()]
        self._meanwhile()
        return found


def append(ledger: PathLedger, rows: TaskRowsHere | pa.Table, version: int = 1) -> bool:
    return append_rows_once(
        cast("Any", rows),
        ledger,
        DELIVERIES,
        app_id="lakemq/g",
        version=version,
        spark=cast("Any", NoSpark()),
    )


def offsets(ledger: PathLedger) -> list[int]:
    return sorted(ledger.open(DELIVERIES).to_pyarrow_table().column("queue_offset").to_pylist())
