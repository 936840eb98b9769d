"""What a ledger is to those who read and write it, wherever its tables are.

Owns the operations that differ between a directory and a catalog; `path_ledger` and `catalog_ledger` have
them, `ledger.ledger_at` chooses.

Invariants: a table's place follows from the ledger alone, so readers and writers always agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from delta_tables.ledger.conflicts import is_lost_commit
from delta_tables.ledger.schema_version import SCHEMA_VERSION, is_behind, written
from delta_tables.ledger.spans import Span
from delta_tables.ledger.stored_columns import StoredColumn, missing_columns, undescribed_columns
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

# Small commits follow each other fast: a checkpoint every 50 keeps the log short to read without
# paying for one every ten batches.
_PROPERTIES = {"delta.checkpointInterval": "50"}
LOG_RETENTION = "delta.logRetentionDuration"
FILE_RETENTION = "delta.deletedFileRetentionDuration"
_RETENTION = (LOG_RETENTION, FILE_RETENTION)
_EARLIER_RETENTION = (("interval 31 days", "interval 31 days"), ("interval 7 days", None), (None, None))
"""What earlier versions made tables with; what an operator set since, of either, is his."""
_SKIPPING = "delta.dataSkippingStatsColumns"
AUTO_COMPACT = "delta.autoOptimize.autoCompact"
"""Has Spark put a table's small files together behind a commit of its own, once there are 50."""
_ADDED_MEANWHILE = ("FIELD_ALREADY_EXISTS", "DELTA_DUPLICATE_COLUMNS_FOUND")
"""Of a column that was missing when it was looked for."""
_TRIES = 5


class LedgerLocation(ABC):
    """The place of a ledger's tables."""

    @property
    @abstractmethod
    def checkpoints(self) -> Path | None:
        """Where the ledger keeps the checkpoints of its streams; None where it cannot."""

    @abstractmethod
    def checkpoints_of(self, group: str) -> Path | None:
        """Where those of a group's streams are, unless it was told otherwise; None where they cannot be."""

    @abstractmethod
    def qualified(self, table: Table) -> str:
        """The table as Spark SQL names it."""

    @abstractmethod
    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it is when an action runs."""

    @abstractmethod
    def exists(self, table: Table, spark: SparkSession | None = None) -> bool:
        """Whether the table was made; a ledger in a catalog needs the session."""

    @abstractmethod
    def version(self, spark: SparkSession, table: Table) -> int:
        """The table's newest version."""

    @property
    @abstractmethod
    def versions_hold_s(self) -> float:
        """How long a version that was asked for counts as the newest: where to ask is a query of Spark's."""

    @abstractmethod
    def rows_within(
        self,
        spark: SparkSession | None,
        table: Table,
        group: str,
        asked: Sequence[Span],
        columns: Sequence[str],
        attempts_from: int | None,
    ) -> pa.Table:
        """A group's rows within some spans, one at least; see `known_keys.known_rows`."""

    @abstractmethod
    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """Ends a writer of rows by appending them to a table."""

    @abstractmethod
    def create(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Creates the tables that are missing, empty.

        Args:
            tables: the tables.
            spark: the session, needed for a ledger in a catalog only.
        """

    @abstractmethod
    def create_for(self, written: Sequence[Table], named: Sequence[Table], spark: SparkSession) -> None:
        """Creates what a job needs, and gives tables of an earlier version the columns they lack.

        Called by a job before it starts a stream: one that reads a table ends when its columns change.

        Args:
            written: the tables it writes.
            named: the tables that views name; in a catalog one that does not exist fails them all.
            spark: the session.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when another version made a table and this one's rows do not fit.
        """

    def fit(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Adds what tables of an earlier version lack: columns, comments, properties; raises as `create_for`.

        A table that lacks nothing is only looked at, as `create_for` does at every start of a job.
        """
        for table in tables:
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._fit(table, spark)
                    break
                except Exception as error:
                    # In a catalog jobs of this version may begin at one time: each commit has one that loses.
                    lost = is_lost_commit(error) or any(name in str(error) for name in _ADDED_MEANWHILE)
                    if not (lost and tries_left):
                        raise

    def _fit(self, table: Table, spark: SparkSession | None) -> None:
        properties = self._stored_properties(table, spark)
        behind = is_behind(properties, table, str(self))
        stored = self._stored_columns(table, spark)
        missing = missing_columns(stored, table, str(self))
        if missing:
            self._add_columns(missing, table, spark)
        if behind:
            self._describe(undescribed_columns(stored, table), table, spark)
        lacking = _lacking_properties(properties, self.properties(table))
        if behind:  # the last: a start that ends before it begins again
            lacking[SCHEMA_VERSION] = written(table)
        if lacking:
            self._set_properties(lacking, table, spark)

    def properties(self, table: Table) -> dict[str, str]:
        """The Delta properties that a table is made with."""
        kept = interval(table.kept_hours)
        skipping = ",".join(table.skipping)
        versioned = {SCHEMA_VERSION: written(table)}
        return {**_PROPERTIES, **dict.fromkeys(_RETENTION, kept), _SKIPPING: skipping, **versioned}

    @abstractmethod
    def writer_locks(self, tables: Sequence[Table]) -> list[WriterLock]:
        """The locks, not taken yet, that exclude another writing process; none where Delta does it."""

    def read_stream(self, spark: SparkSession, table: Table, start: Mapping[str, str]) -> DataFrame:
        """The table's rows as they are appended; rewrites and deletions by maintenance are passed over.

        Args:
            spark: the session.
            table: the table.
            start: Delta's startingVersion or startingTimestamp; empty begins with the table's first row.
        """
        return self._stream_from(spark.readStream.option("skipChangeCommits", "true").options(**start), table)

    def append_stream(self, rows: DataFrame, table: Table, **options: str) -> StreamingQuery:
        """Starts a stream of rows into a table through Delta's own exactly-once sink.

        Args:
            rows: a streaming frame with the table's columns.
            table: the table.
            options: the writer's options, with `queryName` and `trigger` (an interval or "availableNow").
        """
        trigger = options.pop("trigger")
        name = options.pop("queryName")
        writer = rows.writeStream.format("delta").queryName(name).outputMode("append").options(**options)
        if trigger == "availableNow":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=trigger)
        return self._stream_to(writer, table)

    @abstractmethod
    def _stored_columns(self, table: Table, spark: SparkSession | None) -> list[StoredColumn]: ...

    @abstractmethod
    def _add_columns(self, added: Sequence[Column], table: Table, spark: SparkSession | None) -> None: ...

    @abstractmethod
    def _describe(self, silent: Sequence[Column], table: Table, spark: SparkSession | None) -> None:
        """Gives columns their comments, and the table its own where it has none."""

    @abstractmethod
    def _stored_properties(self, table: Table, spark: SparkSession | None) -> Mapping[str, str]: ...

    @abstractmethod
    def _set_properties(
        self, properties: Mapping[str, str], table: Table, spark: SparkSession | None
    ) -> None: ...

    @abstractmethod
    def _stream_from(self, reader: DataStreamReader, table: Table) -> DataFrame: ...

    @abstractmethod
    def _stream_to(self, writer: DataStreamWriter, table: Table) -> StreamingQuery: ...


def interval(hours: int) -> str:
    """So many hours as a property of Delta's writes them."""
    days, rest = divmod(hours, 24)
    return f"interval {hours} hours" if rest else f"interval {days} days"


def _lacking_properties(stored: Mapping[str, str], made: Mapping[str, str]) -> dict[str, str]:
    """The properties that a table of an earlier version is given; what an operator set stays."""
    lacking: dict[str, str] = {}
    retention = tuple(map(stored.get, _RETENTION))
    if retention in _EARLIER_RETENTION and retention != tuple(made[name] for name in _RETENTION):
        lacking |= {name: made[name] for name in _RETENTION}
    # Statistics on columns that this version does not name are an operator's, or a later version's.
    there = {name.strip(" `") for name in stored.get(_SKIPPING, "").split(",")} - {""}
    if there and there < set(made[_SKIPPING].split(",")):
        lacking[_SKIPPING] = made[_SKIPPING]
    if AUTO_COMPACT in made and AUTO_COMPACT not in stored:
        lacking[AUTO_COMPACT] = made[AUTO_COMPACT]
    return lacking
