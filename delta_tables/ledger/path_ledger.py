"""A ledger in a directory: one Delta table a subdirectory, checkpoints and locks beside them.

Owns the layout of the directory. Small queries and commits go through `deltalake`, without a Spark job.

Invariants: one process of this host writes a table at a time (`writer_locks`), as Delta on a local path
excludes writers inside one JVM only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_tables.ledger.location import LedgerLocation, table_properties
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.table import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter


@dataclass(frozen=True)
class PathLedger(LedgerLocation):
    """A ledger on a path.

    Attributes:
        directory: absolute.
    """

    directory: Path

    def __str__(self) -> str:
        return str(self.directory)

    @property
    def checkpoints(self) -> Path:
        """`_checkpoints` in the ledger's directory."""
        return self.directory / "_checkpoints"

    def path(self, table: Table) -> Path:
        """The directory of a table."""
        return self.directory / table.name

    def exists(self, table: Table) -> bool:
        """Whether the table was made."""
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(str(self.path(table))))

    def open(self, table: Table) -> DeltaTable:
        """The table as it is now, for `deltalake`."""
        from deltalake import DeltaTable

        return DeltaTable(str(self.path(table)))

    def qualified(self, table: Table) -> str:
        """The table as Spark SQL names it."""
        return f"delta.`{self.path(table)}`"

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it is when an action runs."""
        return spark.read.format("delta").load(str(self.path(table)))

    def version(self, spark: SparkSession, table: Table) -> int:
        """The table's newest version."""
        return self.open(table).version()

    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """Ends a writer of rows by appending them to a table."""
        writer.save(str(self.path(table)))

    def create(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Creates the tables that are missing, empty; needs no session."""
        from deltalake import DeltaTable

        for table in tables:
            if self.exists(table):
                continue
            DeltaTable.create(
                str(self.path(table)),
                schema=table.arrow_schema,
                mode="ignore",
                name=table.name,
                description=table.comment,
                configuration=table_properties(table),
            )

    def create_for(self, written: Sequence[Table], named: Sequence[Table], spark: SparkSession) -> None:
        """Creates what a job writes; a query of the views makes the rest."""
        self.create(*written)

    def writer_locks(self, tables: Sequence[Table]) -> list[WriterLock]:
        """A lock for each table."""
        return [WriterLock(self.directory, table.name) for table in tables]

    def _stream_from(self, reader: DataStreamReader, table: Table) -> DataFrame:
        return reader.format("delta").load(str(self.path(table)))

    def _stream_to(self, writer: DataStreamWriter, table: Table) -> StreamingQuery:
        return writer.start(str(self.path(table)))
