"""SQL over a ledger on a path, without a JVM.

Owns a DataFusion session (`deltalake`'s QueryBuilder) with the ledger's tables and views.

Invariants: it never writes, though the engine would (COPY, also in the middle of an EXPLAIN ANALYZE):
read_statement.py says what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from delta_tables.deliveries import DELIVERIES
from delta_tables.key_index.look_up import make_view
from delta_tables.ledger import ledger_at
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.query_errors import explained
from delta_tables.read_statement import check_names, check_reads
from delta_tables.table import OUTBOX, TABLE_ROWS, Table, ddl_of
from delta_tables.views import BY_KEY, TABLES, VIEWS, view_sql
from store_native.errors import from_code

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
    ddl_of(TABLE_ROWS): (
        "CASE WHEN {null} = '' THEN make_array(named_struct('table_name', '', 'row_json', '')) END"
    ),
}
"""Null as a value of each type of the tables, in the engine's SQL, out of a null that is a text.

That one is nullif(column, column), which the engine does not work out beforehand: it would pass over a
condition that comes to NULL, and find every row.
"""


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
        check_reads(text)  # before any table is opened
        return self.snapshot().sql(text)

    def snapshot(self) -> LedgerSnapshot:
        """The tables as they are now, for several statements."""
        # A table that cannot be opened is no statement's fault. Views are only parsed here; the engine looks
        # at those a statement uses.
        session = QueryBuilder()
        opened: dict[str, DeltaTable] = {}
        for table in TABLES:
            if self._location.exists(table):
                opened[table.name] = self._location.open(table)
                _register(session, table, opened[table.name])
            else:
                _register_empty(session, table)
        for name in VIEWS:
            if name != BY_KEY:
                session.execute(f"CREATE VIEW {name} AS {view_sql(name)}").read_all()
        deliveries = opened.get(DELIVERIES.name)
        return LedgerSnapshot(session, lambda: make_view(session, self._location, deliveries))


class LedgerSnapshot:
    """A ledger's tables as they were when this was made."""

    def __init__(self, session: QueryBuilder, make_by_key: Callable[[], None]) -> None:
        """Takes a session that knows tables and views, and what makes the view that is made when named."""
        self._session = session
        self._make_by_key: Callable[[], None] | None = make_by_key

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT; raises as `LedgerReader.sql`."""
        check_reads(text)
        self._know_views(text)
        with _explained(text):
            result = pa.table(self._session.execute(text).read_all())
        check_names(result.schema.names)  # SELECT ... INTO, a table of this session, has none
        return _plain(result)

    def batches(self, text: str, most_rows: int) -> Iterator[pa.Table]:
        """Runs one SELECT that neither sorts nor groups, and holds only some of its rows at a time.

        Args:
            text: The statement.
            most_rows: In one table.

        Raises:
            InvalidRequest: As `LedgerReader.sql`, also from the iterator.
        """
        check_reads(text)
        self._know_views(text)
        with _explained(text):
            self._session.execute(f"SET datafusion.execution.batch_size = {most_rows}").read_all()
            for batch in self._session.execute(text):
                yield _plain(pa.Table.from_batches([pa.record_batch(batch)]))

    def microseconds(self, timestamp: str) -> str:
        """A time in SQL as microseconds since 1970."""
        return f"arrow_cast({timestamp}, 'Int64')"

    def exploded(self, items: str, count: str, name: str) -> str:
        """Each item of a list in SQL, in a row of its own, with its place from 0 on.

        Args:
            items: The list's column.
            count: The column that has the list's length.
            name: Of the item's column; that of its place is ``place``.
        """
        return f"unnest(range(0, CAST({count} AS BIGINT))) AS place, unnest({items}) AS {name}"

    def percentile(self, share: float, value: str) -> str:
        """An approximate percentile of a group's values in SQL."""
        return f"approx_percentile_cont({share}) WITHIN GROUP (ORDER BY {value})"

    def _know_views(self, text: str) -> None:
        # The view of the keys looks at the index: only where it is named.
        if self._make_by_key is not None and BY_KEY in text.lower():
            self._make_by_key()
            self._make_by_key = None


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


def _register_empty(session: QueryBuilder, table: Table) -> None:
    """Makes a table known that is not there: an archive that never ran, say, reads as an empty one."""
    nothing = "CAST(NULL AS STRING)"
    columns = ", ".join(f"{_NULL[c.ddl].format(null=nothing)} AS {c.name}" for c in table.columns)
    session.execute(f"CREATE VIEW {table.name} AS SELECT {columns} WHERE false").read_all()


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
