"""A ledger whose commits fail when a test says so: before the commit, or after it with its answer lost.

Owns both kinds of ledger with that fault, and which of their commits fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from delta_tables.task_rows import TaskRows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrameWriter

When = Literal["before", "after"]


class InjectedError(Exception):
    """A commit failed because the test wanted it to."""


class CommitFaults:
    """Says which commit fails; none until one is armed."""

    def __init__(self) -> None:
        self._table = ""
        self._left = 0
        self._when: When = "before"
        self.fired = 0

    def arm(self, table: Table, number: int, when: When) -> None:
        """Makes a commit fail.

        Args:
            table: Of the table.
            number: Which of the table's commits from now on, 1 for the next.
            when: Before the commit: its rows were made, handlers were called, nothing is in the table. After
                it: the rows are in, and the writer is not told.
        """
        self._table, self._left, self._when = table.name, number, when

    @contextmanager
    def around(self, table: Table, make_rows: Callable[[], None]) -> Iterator[None]:
        """Surrounds one commit; `make_rows` evaluates its rows without writing them."""
        hit = False
        if table.name == self._table:
            self._left -= 1
            hit = self._left == 0
        if hit and self._when == "before":
            make_rows()
            self._fail(table)
        yield
        if hit:
            self._fail(table)

    def _fail(self, table: Table) -> None:
        self._table = ""
        self.fired += 1
        raise InjectedError(f"{self._when} the commit to {table.name}")


@dataclass(frozen=True)
class FaultyPathLedger(PathLedger):
    """A ledger on a path with faults."""

    faults: CommitFaults = field(default_factory=CommitFaults)

    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """As any ledger, or fails."""
        with self.faults.around(table, lambda: _evaluate(writer)):
            super().append(writer, table)

    def append_tasks(
        self, rows: TaskRows, table: Table, delta: DeltaTable, *, app_id: str, version: int
    ) -> bool:
        """As any ledger, or fails."""
        with self.faults.around(table, lambda: _evaluate(rows.frame().write)):
            return super().append_tasks(rows, table, delta, app_id=app_id, version=version)
        raise AssertionError("the ledger returns or fails")

    def append_arrow(self, rows: pa.Table, table: Table, *, app_id: str, version: int) -> bool:
        """As any ledger, or fails."""
        with self.faults.around(table, lambda: None):
            return super().append_arrow(rows, table, app_id=app_id, version=version)
        raise AssertionError("the ledger returns or fails")


@dataclass(frozen=True)
class FaultyCatalogLedger(CatalogLedger):
    """A ledger in a catalog with faults."""

    faults: CommitFaults = field(default_factory=CommitFaults)

    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """As any ledger, or fails."""
        with self.faults.around(table, lambda: _evaluate(writer)):
            super().append(writer, table)


def with_faults(ledger: LedgerLocation, faults: CommitFaults) -> LedgerLocation:
    """The same ledger with faults."""
    if isinstance(ledger, PathLedger):
        return FaultyPathLedger(ledger.directory, faults)
    assert isinstance(ledger, CatalogLedger)
    return FaultyCatalogLedger(ledger.schema, faults)


def _evaluate(writer: DataFrameWriter) -> None:
    """Runs a writer's plan into nothing; the writer is not used after it."""
    writer.format("noop").mode("overwrite").save()
