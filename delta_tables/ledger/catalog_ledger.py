"""A ledger in a schema of a catalog, such as Unity Catalog's: all of it goes through Spark SQL.

Owns the names of its tables.

Invariants: writers are kept apart by Delta itself.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from delta_tables.ledger.location import AUTO_COMPACT, LedgerLocation
from delta_tables.ledger.spans import Span
from delta_tables.ledger.stored_columns import StoredColumn
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.table import Column, Table, spark_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter


@dataclass(frozen=True)
class CatalogLedger(LedgerLocation):
    """A ledger in a catalog.

    Attributes:
        schema: `catalog.schema`.
    """

    schema: str

    def __str__(self) -> str:
        return self.schema

    @property
    def checkpoints(self) -> None:
        """None: a catalog keeps tables only."""
        return None

    def checkpoints_of(self, group: str) -> None:
        """None: a catalog keeps tables only."""
        return

    def qualified(self, table: Table) -> str:
        """The table as Spark SQL names it."""
        return f"{self.schema}.{table.name}"

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it is when an action runs."""
        return spark.read.table(self.qualified(table))

    def exists(self, table: Table, spark: SparkSession | None = None) -> bool:
        """Whether the table was made."""
        assert spark is not None, "a ledger in a catalog is read through Spark"
        return bool(spark.catalog.tableExists(self.qualified(table)))

    def version(self, spark: SparkSession, table: Table) -> int:
        """The table's newest version."""
        newest = spark.sql(f"DESCRIBE HISTORY {self.qualified(table)} LIMIT 1").head()
        assert newest is not None, f"{self.qualified(table)} has no history"
        return int(newest["version"])

    @property
    def versions_hold_s(self) -> float:
        """Some seconds: an idle group would ask Spark all the time."""
        return 5.0

    def rows_within(
        self,
        spark: SparkSession | None,
        table: Table,
        group: str,
        asked: Sequence[Span],
        columns: Sequence[str],
        attempts_from: int | None,
    ) -> pa.Table:
        """A group's rows within some spans."""
        from pyspark.sql import functions as F

        assert spark is not None, "a ledger in a catalog is read through Spark"
        where = (F.col("consumer_group") == group) & reduce(operator.or_, map(_within, asked))
        if attempts_from is not None:
            where = where & (F.col("attempt") >= attempts_from)
        return self.read(spark, table).where(where).select(*columns).toArrow()

    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """Ends a writer of rows by appending them to a table."""
        writer.saveAsTable(self.qualified(table))

    def create(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Creates the tables that are missing, empty."""
        assert spark is not None, "a ledger in a catalog is created through Spark"
        for table in tables:
            columns = ", ".join(column.described_ddl for column in table.columns)
            made_with = {**self.properties(table), **table.constraints}
            properties = ", ".join(f"'{name}' = {spark_text(value)}" for name, value in made_with.items())
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.qualified(table)} ({columns}) USING delta "
                f"COMMENT {spark_text(table.comment)} TBLPROPERTIES ({properties})"
            )

    def create_for(self, written: Sequence[Table], named: Sequence[Table], spark: SparkSession) -> None:
        """Creates what a job writes and what views name; what it writes fits this version's rows then."""
        self.create(*dict.fromkeys([*written, *named]), spark=spark)
        self.fit(*written, spark=spark)

    def properties(self, table: Table) -> dict[str, str]:
        """As of any ledger, and Delta keeps its small files few: of two writers that do, one goes without."""
        return {**super().properties(table), AUTO_COMPACT: "true"}

    def writer_locks(self, tables: Sequence[Table]) -> list[WriterLock]:
        """None are needed."""
        return []

    def _stored_columns(self, table: Table, spark: SparkSession | None) -> list[StoredColumn]:
        assert spark is not None, "a ledger in a catalog is read through Spark"
        fields = spark.read.table(self.qualified(table)).schema.fields
        return [
            StoredColumn(
                field.name, field.dataType.simpleString(), field.nullable, field.metadata.get("comment", "")
            )
            for field in fields
        ]

    def _add_columns(self, added: Sequence[Column], table: Table, spark: SparkSession | None) -> None:
        assert spark is not None, "a ledger in a catalog is changed through Spark"
        listed = ", ".join(column.described_ddl for column in added)
        spark.sql(f"ALTER TABLE {self.qualified(table)} ADD COLUMNS ({listed})")

    def _describe(self, silent: Sequence[Column], table: Table, spark: SparkSession | None) -> None:
        assert spark is not None, "a ledger in a catalog is changed through Spark"
        name = self.qualified(table)
        if silent:
            listed = ", ".join(f"{column.name} COMMENT {spark_text(column.comment)}" for column in silent)
            spark.sql(f"ALTER TABLE {name} ALTER COLUMN {listed}")
        detail = spark.sql(f"DESCRIBE DETAIL {name}").head()
        assert detail is not None, f"{name} has no description"
        if not detail["description"]:
            spark.sql(f"COMMENT ON TABLE {name} IS {spark_text(table.comment)}")

    def _stored_properties(self, table: Table, spark: SparkSession | None) -> Mapping[str, str]:
        assert spark is not None, "a ledger in a catalog is read through Spark"
        stored = spark.sql(f"SHOW TBLPROPERTIES {self.qualified(table)}").collect()
        return {row["key"]: row["value"] for row in stored}

    def _set_properties(
        self, properties: Mapping[str, str], table: Table, spark: SparkSession | None
    ) -> None:
        assert spark is not None, "a ledger in a catalog is changed through Spark"
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        spark.sql(f"ALTER TABLE {self.qualified(table)} SET TBLPROPERTIES ({listed})")

    def _stream_from(self, reader: DataStreamReader, table: Table) -> DataFrame:
        return reader.table(self.qualified(table))

    def _stream_to(self, writer: DataStreamWriter, table: Table) -> StreamingQuery:
        return writer.toTable(self.qualified(table))


def _within(span: Span) -> SparkColumn:
    from pyspark.sql import functions as F

    within = (F.col("topic") == span.topic) & F.col("queue_offset").between(span.low, span.high)
    return within if span.queue_id is None else within & (F.col("queue_id") == span.queue_id)
