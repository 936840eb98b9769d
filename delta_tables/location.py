"""Where a ledger lives: a directory, or a schema of a catalog.

Owns the mapping from a table to its path or name and the creation of empty tables.

Invariants: a table's place follows from the ledger alone, so readers and writers always agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")

# Small commits follow each other fast: a checkpoint every 50 keeps the log short to read without
# paying for one every ten batches. The log itself may be cleaned after a week.
_PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 7 days"}


@dataclass(frozen=True)
class LedgerLocation:
    """The place of a ledger's tables.

    Attributes:
        directory: the ledger's directory, None for a ledger in a catalog.
        schema: `catalog.schema` (Unity Catalog), None for a ledger on a path.
    """

    directory: Path | None
    schema: str | None

    @classmethod
    def parse(cls, text: str) -> LedgerLocation:
        """Reads `--ledger`: two plain names with a dot are catalog.schema, anything else is a path."""
        if _CATALOG_NAME.fullmatch(text) and not Path(text).exists():
            return cls(directory=None, schema=text)
        return cls(directory=Path(text).absolute(), schema=None)

    def __str__(self) -> str:
        return self.schema if self.schema is not None else str(self.directory)

    def path(self, table: Table) -> Path:
        """The directory of a table of a ledger on a path."""
        assert self.directory is not None, f"{self} is a catalog's schema"
        return self.directory / table.name

    def qualified(self, table: Table) -> str:
        """The table as Spark SQL names it."""
        if self.schema is not None:
            return f"{self.schema}.{table.name}"
        return f"delta.`{self.path(table)}`"

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it stands when an action runs."""
        if self.schema is not None:
            return spark.read.table(self.qualified(table))
        return spark.read.format("delta").load(str(self.path(table)))

    def read_stream(self, spark: SparkSession, table: Table, start: Mapping[str, str]) -> DataFrame:
        """The table's rows as they are appended; rewrites and deletions by maintenance are passed over.

        Args:
            spark: the session.
            table: the table.
            start: Delta's startingVersion or startingTimestamp; empty begins with the table's first row.
        """
        reader = spark.readStream.option("skipChangeCommits", "true").options(**start)
        if self.schema is not None:
            return reader.table(self.qualified(table))
        return reader.format("delta").load(str(self.path(table)))

    def version(self, spark: SparkSession, table: Table) -> int:
        """The table's newest version."""
        if self.schema is not None:
            newest = spark.sql(f"DESCRIBE HISTORY {self.qualified(table)} LIMIT 1").head()
            assert newest is not None, f"{self.qualified(table)} has no history"
            return int(newest["version"])
        from deltalake import DeltaTable

        return DeltaTable(str(self.path(table))).version()

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
        if self.schema is not None:
            return writer.toTable(self.qualified(table))
        return writer.start(str(self.path(table)))

    def create(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Creates the tables that are missing, empty.

        Args:
            tables: the tables.
            spark: the session, needed for a ledger in a catalog only.
        """
        for table in tables:
            if self.schema is not None:
                assert spark is not None, "a ledger in a catalog is created through Spark"
                properties = ", ".join(f"'{key}' = '{value}'" for key, value in _properties(table).items())
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {self.qualified(table)} ({table.ddl}) USING delta "
                    f"TBLPROPERTIES ({properties})"
                )
            else:
                self._create_on_path(table)

    def _create_on_path(self, table: Table) -> None:
        from deltalake import DeltaTable

        path = self.path(table)
        if DeltaTable.is_deltatable(str(path)):
            return
        DeltaTable.create(
            str(path),
            schema=table.arrow_schema,
            mode="ignore",
            name=table.name,
            description=table.comment,
            configuration=_properties(table),
        )


def _properties(table: Table) -> dict[str, str]:
    return {**_PROPERTIES, "delta.dataSkippingStatsColumns": ",".join(table.skipping)}
