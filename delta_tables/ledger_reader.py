"""SQL over a ledger on a path, without a JVM.

Owns a DataFusion session (`deltalake`'s QueryBuilder) with the ledger's tables and views, and which
statements it takes: the engine would write files (COPY), also in the middle of an EXPLAIN ANALYZE.

Invariants: it never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from delta_tables.ledger import ledger_at
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.query_errors import explained
from delta_tables.table import OUTBOX, Table, ddl_of
from delta_tables.views import TABLES, VIEWS, view_sql
from store_native.errors import from_code

_ONLY_READ = (
    "a ledger is only read: one SELECT, WITH, VALUES, FROM, EXPLAIN of such, or DESCRIBE of a table, with no "
    "comment inside a comment"
)
_NULL = {
    "STRING": "{null}",
    "BINARY": "arrow_cast({null}, 'Binary')",
    "INT": "CAST({null} AS INT)",
    "BIGINT": "CAST({null} AS BIGINT)",
    "TIMESTAMP": "arrow_cast({null}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    "ARRAY<STRING>": "CASE WHEN {null} = '' THEN make_array('') END",
    "MAP<STRING,STRING>": "CASE WHEN {null} = '' THEN map([''], ['']) END",
    ddl_of(OUTBOX): (
        "CASE WHEN {null} = '' THEN make_array(named_struct('topic', '', 'message_id', '', "
        "'keys', make_array(''), 'tags', '', 'properties', map([''], ['']), 'sharding_key', '', "
        "'delay_level', CAST(0 AS INT), 'body', arrow_cast('', 'Binary'))) END"
    ),
}
"""Null as a value of each type of the tables, in the engine's SQL, out of a null that is a text.

That one is nullif(column, column), which the engine does not work out beforehand: it would pass over a
condition that comes to NULL, and find every row.
"""

_GAP = r"(?:[\s(]|--[^\n]*(?:\n|\Z)|/\*(?:(?!/\*|\*/).)*\*/)"
"""What may come before a word. The engine nests comments; one inside another could hide where they end."""

_READS = re.compile(
    rf"{_GAP}*(?:(?:(?:explain|describe|desc)\b{_GAP}*(?:(?:analyze|verbose|extended)\b{_GAP}*)*)?"
    rf"(?:select|with|values|from)\b.*|(?:describe|desc)\b{_GAP}*[\w.\"]+[\s;]*)",
    re.IGNORECASE | re.DOTALL,
)

_READING = ("select", "with", "values", "from", "explain", "describe", "desc")
_WORD = re.compile(rf"{_GAP}*(\w+)", re.DOTALL)


class LedgerReader:
    """A ledger to query.

    Example:
        >>> LedgerReader("./ledger").sql("SELECT verdict, count(*) FROM deliveries GROUP BY verdict")
    """

    def __init__(self, path: str | Path) -> None:
        """Looks at a ledger's directory.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when it names a catalog or holds no ledger.
        """
        location = ledger_at(str(path))
        if not isinstance(location, PathLedger):
            raise from_code("ARGUMENT_ILLEGAL", f"{path} is a catalog's schema: query it with Spark SQL")
        self._location = location
        if not any(location.exists(table) for table in TABLES):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"no ledger at {path}: a group's first run makes it (lakemq consume --ledger {path})",
            )

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT on the tables as they are now.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the text does anything but read, or is not SQL the engine
                knows, with its reason.
        """
        _check_reads(text)  # before any table is opened
        return self.snapshot().sql(text)

    def snapshot(self) -> LedgerSnapshot:
        """The tables as they are now, for several statements."""
        # A table that cannot be opened is no statement's fault. Views are only parsed here; the engine looks
        # at those a statement uses.
        return LedgerSnapshot(self._session())

    def _session(self) -> QueryBuilder:
        session = QueryBuilder()
        for table in TABLES:
            # A missing table reads as an empty one: an archive that never ran, say.
            self._location.create(table)
            _register(session, table, self._location.open(table))
        for name in VIEWS:
            session.execute(f"CREATE VIEW {name} AS {view_sql(name)}").read_all()
        return session


class LedgerSnapshot:
    """A ledger's tables as they were when this was made."""

    def __init__(self, session: QueryBuilder) -> None:
        """Takes a session that knows the tables and views."""
        self._session = session

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT; raises as `LedgerReader.sql`."""
        _check_reads(text)
        with _explained(text):
            result = pa.table(self._session.execute(text).read_all())
        if not result.schema.names:  # SELECT ... INTO: a table of this session, which ends here
            raise from_code("ARGUMENT_ILLEGAL", f"the statement has no result; {_ONLY_READ}")
        twice = sorted({name for name in result.schema.names if result.schema.names.count(name) > 1})
        if twice:  # a row as a dictionary, or as JSON, would have one of them
            raise from_code("ARGUMENT_ILLEGAL", f"several columns are called {twice[0]}: AS gives them names")
        return _plain(result)

    def batches(self, text: str, most_rows: int) -> Iterator[pa.Table]:
        """Runs one SELECT that neither sorts nor groups, and holds only some of its rows at a time.

        Args:
            text: The statement.
            most_rows: In one table.

        Raises:
            InvalidRequest: As `LedgerReader.sql`, also from the iterator.
        """
        _check_reads(text)
        with _explained(text):
            self._session.execute(f"SET datafusion.execution.batch_size = {most_rows}").read_all()
            for batch in self._session.execute(text):
                yield _plain(pa.Table.from_batches([pa.record_batch(batch)]))


@contextmanager
def _explained(text: str) -> Iterator[None]:
    """Turns the engine's errors into the library's.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    try:
        yield
    except Exception as error:
        # DataFusion's errors have no class of their own: they are known by where they come from.
        if not type(error).__module__.startswith(("deltalake", "_internal", "builtins")):
            raise
        raise from_code("ARGUMENT_ILLEGAL", explained(error, text)) from error


def _plain(result: pa.Table) -> pa.Table:
    plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in result.schema])
    return result.cast(plain, safe=False)


def _check_reads(text: str) -> None:
    if not _READS.fullmatch(text):
        first = _WORD.match(text)
        strange = first is not None and first[1].lower() not in _READING
        begins = f"the statement begins with {first[1]!r}: " if first and strange else ""
        raise from_code("ARGUMENT_ILLEGAL", begins + _ONLY_READ)


def _register(session: QueryBuilder, table: Table, stored: DeltaTable) -> None:
    """Makes a table known; columns that an earlier version did not write are null."""
    there = {field.name.lower(): field.name for field in stored.schema().fields}
    lacking = [column for column in table.columns if column.name not in there]
    if not lacking:
        session.register(table.name, stored)
        return
    session.register(f"{table.name}_as_stored", stored)
    # Each out of a text of its own: what two have in common the engine works out once, under one name on both
    # sides of a join, which it then refuses.
    texts = cycle(
        there[column.name] for column in table.columns if column.ddl == "STRING" and column.name in there
    )
    nulls = ", ".join(
        f"{_NULL[column.ddl].format(null=_null_of(text))} AS {column.name}"
        for column, text in zip(lacking, texts, strict=False)
    )
    session.execute(f"CREATE VIEW {table.name} AS SELECT *, {nulls} FROM {table.name}_as_stored").read_all()


def _null_of(text: str) -> str:
    return f'nullif("{text}", "{text}")'


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type with what Python or older Arrow readers cannot take replaced: views, nanoseconds."""
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    if pa.types.is_duration(arrow):
        return pa.duration("us")
    if pa.types.is_string_view(arrow):
        return pa.string()
    if pa.types.is_binary_view(arrow):
        return pa.binary()
    if pa.types.is_list(arrow):
        return pa.list_(plain_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(plain_type(arrow.key_type), plain_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in arrow])
    return arrow
