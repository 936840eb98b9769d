"""A ledger in plain Python, for the model of a group job: Delta's rules for commits, and SQL by SQLite.

Owns tables in memory, what a commit of (application, version) does to them, and which commit fails.

Invariants: as Delta, a commit whose version its application has had is left out without making its rows; one
whose application moved on while the rows were made ends as overtaken. The questions of a job are its own
texts: SQLite answers them over the columns that it has types for.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import Span, quoted, within_sql
from delta_tables.ledger.stored_columns import StoredColumn
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.table import Column, Table

_ENTRY_OF_A_MAP = re.compile(r"\b(\w+\.)?properties\['\w+'\]")
_SCALARS = (str, int, float, datetime, type(None))

Moment = Callable[[str, Table], None]
"""Called with `before` and `after` around each commit, when its rows are made; what it raises ends it."""


class OvertakenError(Exception):
    """As Delta says it."""

    def __init__(self) -> None:
        super().__init__("io.delta.exceptions.ConcurrentTransactionException")


class ModelLedger(LedgerLocation):
    """A ledger in memory.

    Attributes:
        commits: By table, the rows of each commit that has some.
        around: See `Moment`.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.commits: dict[str, list[list[dict[str, Any]]]] = {table.name: [] for table in tables}
        self.around: Moment = lambda moment, table: None
        self._transactions: dict[tuple[str, str], int] = {}
        self._sql = sqlite3.connect(":memory:")
        for table in tables:
            self._sql.execute(f"CREATE TABLE {table.name} ({', '.join(table.column_names)})")

    def exists(self, table: Table, spark: Any = None) -> bool:
        return table.name in self.commits

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """All rows of a table, as they came."""
        return [row for rows in self.commits[table.name] for row in rows]

    def commit(self, make_rows: Callable[[], pa.Table], table: Table, app_id: str, version: int) -> bool:
        """Commits once; returns whether it did.

        Raises:
            OvertakenError: The application moved on meanwhile.
        """
        app = (table.name, app_id)
        known = self._transactions.get(app, -1)
        if version <= known:
            return False
        made = make_rows().to_pylist()
        self.around("before", table)
        if self._transactions.get(app, -1) != known:
            raise OvertakenError
        self._transactions[app] = version
        self.put(table, made)
        self.around("after", table)
        return True

    def put(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows, whosever they are."""
        whole = [{name: row.get(name) for name in table.column_names} for row in rows]
        if whole:
            self.commits[table.name].append(whole)
        marks = ", ".join("?" * len(table.columns))
        self._sql.executemany(
            f"INSERT INTO {table.name} VALUES ({marks})",
            [[_stored(value) for value in row.values()] for row in whole],
        )

    def sql(self, text: str) -> pa.Table:
        """Answers a SELECT."""
        found = self._sql.execute(_ENTRY_OF_A_MAP.sub("NULL", text))
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        return pa.Table.from_pylist(rows, pa.schema([])) if not rows else pa.Table.from_pylist(rows)

    @property
    def checkpoints(self) -> None:
        return None

    def checkpoints_of(self, group: str) -> Path | None:
        return None

    def qualified(self, table: Table) -> str:
        return f"main.{table.name}"

    def read(self, spark: Any, table: Table) -> Any:
        raise NotImplementedError

    def version(self, spark: Any, table: Table) -> int:
        return len(self.commits[table.name])

    @property
    def versions_hold_s(self) -> float:
        return 0.0

    def rows_within(
        self,
        spark: Any,
        table: Table,
        group: str,
        asked: Sequence[Span],
        columns: Sequence[str],
        attempts_from: int | None,
    ) -> pa.Table:
        later = "" if attempts_from is None else f" AND attempt >= {attempts_from}"
        where = f"consumer_group = {quoted(group)}{later} AND ({' OR '.join(map(within_sql, asked))})"
        return self.sql(f"SELECT {', '.join(columns)} FROM main.{table.name} WHERE {where}")

    def append(self, writer: Any, table: Table) -> None:
        writer.commit_to(self, table)

    def create(self, *tables: Table, spark: Any = None) -> None:
        assert all(table.name in self.commits for table in tables)

    def create_for(self, written: Sequence[Table], named: Sequence[Table], spark: Any) -> None:
        self.create(*written, *named)

    def writer_locks(self, tables: Sequence[Table]) -> list[WriterLock]:
        return []

    def _stored_columns(self, table: Table, spark: Any) -> list[StoredColumn]:
        raise NotImplementedError

    def _add_columns(self, added: Sequence[Column], table: Table, spark: Any) -> None:
        raise NotImplementedError

    def _describe(self, silent: Sequence[Column], table: Table, spark: Any) -> None:
        raise NotImplementedError

    def _stored_properties(self, table: Table, spark: Any) -> Mapping[str, str]:
        raise NotImplementedError

    def _set_properties(self, properties: Mapping[str, str], table: Table, spark: Any) -> None:
        raise NotImplementedError

    def _stream_from(self, reader: Any, table: Table) -> Any:
        raise NotImplementedError

    def _stream_to(self, writer: Any, table: Table) -> Any:
        raise NotImplementedError


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, _SCALARS) else repr(value)
