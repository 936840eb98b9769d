"""What holds for each row of a ledger table.

Owns a condition in the words of SQL, by which Delta's writers refuse a row, and for Arrow, where a task
writes the table's files itself.

Invariants: both say the same; null is not accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from store_native.errors import from_code


@dataclass(frozen=True)
class AtLeast:
    """A number is not smaller than another."""

    column: str
    least: int

    @property
    def sql(self) -> str:
        """The condition in SQL."""
        return f"{self.column} >= {self.least}"

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether it holds, or null, row by row."""
        return pc.greater_equal(rows.column(self.column), self.least)


@dataclass(frozen=True)
class OneOf:
    """A text is one of some plain words."""

    column: str
    words: tuple[str, ...]

    @property
    def sql(self) -> str:
        """The condition in SQL."""
        words = ", ".join(f"'{word}'" for word in self.words)
        return f"{self.column} IN ({words})"

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether it holds, row by row."""
        return pc.is_in(rows.column(self.column), value_set=pa.array(self.words, pa.string()))


@dataclass(frozen=True)
class Check:
    """A named constraint of a table.

    Attributes:
        name: as Delta's property `delta.constraints.NAME` has it.
        conditions: all of them hold.
    """

    name: str
    conditions: tuple[AtLeast | OneOf, ...]

    @property
    def sql(self) -> str:
        """The constraint in SQL, of Spark's and of `deltalake`."""
        return " AND ".join(condition.sql for condition in self.conditions)

    def ensure(self, rows: pa.RecordBatch) -> None:
        """Looks at some rows.

        Raises:
            LakeMQError: SYSTEM_ERROR, it does not hold for one.
        """
        for condition in self.conditions:
            if not pc.all(condition.of(rows), skip_nulls=False, min_count=0).as_py():
                raise from_code("SYSTEM_ERROR", f"the check {self.name} ({self.sql}) does not hold for a row")
