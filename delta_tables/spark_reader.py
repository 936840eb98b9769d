"""SQL over a ledger, by Spark: one in a catalog, or one on a path that asks for more than a process has.

Owns a session of Spark's beside the caller's, with the ledger's tables and views as temporary ones.

Invariants: it never writes; what stands in double quotes is a name, as without Spark. A backslash in a text
begins an escape, as everywhere in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_tables.ledger.location import LedgerLocation
from delta_tables.read_statement import check_names, check_reads
from delta_tables.table import Table
from delta_tables.views import TABLES, VIEWS, named_in, register
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}
_SAYS_ONLY = re.compile(r"[\s(]*(?:explain|describe|desc)\b", re.IGNORECASE)
_CALLS_JAVA = re.compile(r"\b(reflect|try_reflect|java_method)\b", re.IGNORECASE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_NO_CATALOG = re.compile(r"requires a single-part namespace, but got identifier `(.+?)`\.")
_STATE = re.compile(r" SQLSTATE: \w+.*", re.DOTALL)


class SparkReader:
    """A ledger to query; as :class:`delta_tables.ledger_reader.LedgerReader`, by Spark.

    Args:
        spark: A session that reaches the ledger.
        location: Where the ledger is.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when there is no ledger, it is not reached, or the session is one of
            Spark Connect's.
    """

    def __init__(self, spark: SparkSession, location: LedgerLocation) -> None:
        if not hasattr(spark, "newSession"):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                "Spark Connect has no session beside this one: take one with a SparkContext",
            )
        self._spark = spark
        self._location = location
        with _explained(f"{location} cannot be read (settings of its catalog: --conf NAME=VALUE): "):
            is_there = any(location.exists(table, spark) for table in TABLES)
        if not is_there:
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"no ledger at {location}: a group's first run makes it (lakemq consume --ledger {location})",
            )

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT on the tables as they are now; raises as `LedgerReader.sql`."""
        check_reads(text)
        return self._of(*named_in(text)).sql(text)

    def snapshot(self) -> SparkSnapshot:
        """The tables as they are now, for several statements; a single one is quicker by :meth:`sql`."""
        return self._of(TABLES, VIEWS)

    def _of(self, tables: Sequence[Table], views: Sequence[str]) -> SparkSnapshot:
        session = self._spark.newSession()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        register(session, {table: self._now(session, table) for table in tables}, views)
        return SparkSnapshot(session)

    def _now(self, session: SparkSession, table: Table) -> DataFrame:
        """A table at its newest version; a missing one, an archive that never ran, say, is an empty one."""
        if not self._location.exists(table, session):
            return session.createDataFrame([], table.ddl)
        version = self._location.version(session, table)
        return session.sql(f"SELECT * FROM {self._location.qualified(table)} VERSION AS OF {version}")


class SparkSnapshot:
    """A ledger's tables as they were when this was made."""

    def __init__(self, session: SparkSession) -> None:
        """Takes a session that knows the tables and views, and that is nobody else's."""
        self._session = session

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT; raises as `LedgerReader.sql`."""
        with _explained():
            return self._frame(text).toArrow()

    def batches(self, text: str, most_rows: int) -> Iterator[pa.Table]:
        """Runs one SELECT, and holds only some of its rows at a time in this process.

        Args:
            text: The statement.
            most_rows: In one table.

        Raises:
            InvalidRequest: As `LedgerReader.sql`, also from the iterator.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        with _explained():
            frame = self._frame(text)
            schema = to_arrow_schema(frame.schema, timezone="UTC")
            found = frame.toLocalIterator()
            while rows := list(islice(found, most_rows)):
                yield pa.Table.from_pylist([_plain(row) for row in rows], schema=schema)

    def microseconds(self, timestamp: str) -> str:
        """A time in SQL as microseconds since 1970."""
        return f"unix_micros({timestamp})"

    def exploded(self, items: str, count: str, name: str) -> str:
        """Each item of a list in SQL; see `LedgerSnapshot.exploded`."""
        return f"posexplode({items}) AS (place, {name})"

    def percentile(self, share: float, value: str) -> str:
        """An approximate percentile of a group's values in SQL."""
        return f"percentile_approx({value}, {share})"

    def _frame(self, text: str) -> DataFrame:
        check_reads(text)
        if called := _CALLS_JAVA.search(text):
            raise from_code(
                "ARGUMENT_ILLEGAL", f"a ledger is only read: {called[0]} calls what it is told to"
            )
        bare = text.rstrip().removesuffix(";")
        # In parentheses: Spark takes WITH ... INSERT and FROM ... INSERT, and not there.
        frame = self._session.sql(bare if _SAYS_ONLY.match(bare) else f"SELECT * FROM (\n{bare}\n)")
        check_names(frame.columns)
        return frame


@contextmanager
def _explained(about: str = "") -> Iterator[None]:
    """Turns Spark's errors into the library's.

    Args:
        about: What the error's text begins with.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark prints each such error too, with the stacks of both languages.
    printing = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, printing.disabled = printing.disabled, True
    try:
        yield
    except PySparkException as error:
        said = str(error).strip()
        first = _STATE.sub("", said.splitlines()[0] if said else type(error).__name__)
        if unknown := _NO_CATALOG.search(first):  # of a name that is no catalog's Spark takes the first part
            name = unknown[1]
            first = f"the session knows no catalog {name}: --conf spark.sql.catalog.{name}=CLASS"
        raise from_code("ARGUMENT_ILLEGAL", about + _CONDITION.sub("", first)) from error
    finally:
        printing.disabled = before


def _plain(value: Any) -> Any:
    """A value of a row as Arrow takes it."""
    if hasattr(value, "asDict"):
        return {name: _plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, Mapping):
        return [(key, _plain(inner)) for key, inner in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(inner) for inner in value]
    return value
