"""One ledger table: its name, its columns, its key, in Arrow's and in Spark's words.

Owns the translation of a column list into an Arrow schema (handlers' workers, `deltalake`) and a Spark DDL
string (`mapInArrow`, CREATE TABLE), so that both always say the same.

Invariants: the order of the columns, which is the order on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from delta_tables.check import AtLeast, Check

TIMESTAMP = pa.timestamp("us", "UTC")
STRINGS = pa.list_(pa.string())
STRING_MAP = pa.map_(pa.string(), pa.string())
OUTBOX = pa.list_(
    pa.struct(
        [
            ("topic", pa.string()),
            ("message_id", pa.string()),
            ("keys", STRINGS),
            ("tags", pa.string()),
            ("properties", STRING_MAP),
            ("sharding_key", pa.string()),
            ("delay_level", pa.int32()),
            ("body", pa.binary()),
        ]
    )
)
"""Messages to send, whole."""

TABLE_ROWS = pa.list_(pa.struct([("table_name", pa.string()), ("row_json", pa.string())]))
"""Rows for users' tables, each as JSON."""

_DDL: dict[pa.DataType, str] = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    TIMESTAMP: "TIMESTAMP",
    STRINGS: "ARRAY<STRING>",
    STRING_MAP: "MAP<STRING,STRING>",
}
for _structs in (OUTBOX, TABLE_ROWS):
    _fields = ",".join(f"{_field.name}:{_DDL[_field.type]}" for _field in _structs.value_type)
    _DDL[_structs] = f"ARRAY<STRUCT<{_fields}>>"


def ddl_of(kind: pa.DataType) -> str:
    """A column's type as Spark writes it."""
    return _DDL[kind]


@dataclass(frozen=True)
class Column:
    """A column: name, Arrow type and one sentence for readers of the table's description."""

    name: str
    type: pa.DataType
    comment: str

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return ddl_of(self.type)

    @property
    def described_field(self) -> pa.Field:
        """The column as Delta keeps it, with its comment."""
        return pa.field(self.name, self.type, metadata={"comment": self.comment})

    @property
    def described_ddl(self) -> str:
        """The column as Spark makes it, with its comment."""
        return f"{self.name} {self.ddl} COMMENT {spark_text(self.comment)}"


def spark_text(text: str) -> str:
    """A text as a literal of Spark SQL, which takes a doubled quote for none."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


POSITION_CHECK = Check("position", (AtLeast("queue_id", 0), AtLeast("queue_offset", 0)))
KEPT_DAYS = 31
"""How long a table's log and the files that were replaced are there for streams over it: a group that is
paused for a month goes on where it was."""


@dataclass(frozen=True)
class Table:
    """An append-only ledger table.

    Attributes:
        name: its directory in a ledger on a path, its name in a catalog's schema.
        columns: all columns in the order on disk.
        key: the columns that name a row; at most one row exists per key.
        comment: one sentence on what a row means.
        skipping: columns whose minimum and maximum each file's entry holds, for readers to skip files by.
            Keeping them for every column costs more than writing the columns.
        kept_hours: how long its log and the files that were replaced stay.
        version: of its columns (ledger/schema_version.py): major, minor.
        checks: what holds for every row.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    comment: str
    skipping: tuple[str, ...]
    kept_hours: int = KEPT_DAYS * 24
    version: tuple[int, int] = (1, 0)
    checks: tuple[Check, ...] = ()

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def arrow_schema_of(self, names: Iterable[str]) -> pa.Schema:
        """Some of the columns as an Arrow schema."""
        return pa.schema([self.arrow_schema.field(name) for name in names])

    @cached_property
    def described_schema(self) -> pa.Schema:
        """The columns as Delta keeps them, with their comments."""
        return pa.schema([column.described_field for column in self.columns])

    @cached_property
    def constraints(self) -> dict[str, str]:
        """The properties by which Delta refuses a row that a check does not hold for."""
        return {f"delta.constraints.{check.name}": check.sql for check in self.checks}

    @cached_property
    def ddl(self) -> str:
        """The columns as Spark writes them: `name TYPE, ...`."""
        return ", ".join(f"{column.name} {column.ddl}" for column in self.columns)

    @cached_property
    def column_names(self) -> list[str]:
        """The names of the columns in the order on disk."""
        return [column.name for column in self.columns]


def columns(described: Iterable[tuple[str, pa.DataType, str]]) -> tuple[Column, ...]:
    """Builds columns from (name, type, comment) rows."""
    return tuple(Column(*row) for row in described)
