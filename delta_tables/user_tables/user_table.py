"""A Delta table of a user's, wherever it is.

Owns what is looked at of such a table, and the append.

Invariants: rows are appended and nothing else: no table is made, no column added. An append is a transaction
of Delta's with the application and the version it is given, and is there once.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from delta_tables.idempotent import commit_once
from delta_tables.user_tables.columns import TableColumns
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TABLES = 8
"""Of one group: each has a stream of its own."""


@dataclass(frozen=True)
class UserTable(ABC):
    """A table; those of a catalog are asked through Spark.

    Attributes:
        name: by which rows name it.
        needs_spark: whether it is looked at with a session only.
    """

    name: str
    needs_spark: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the name; raises InvalidRequest."""
        if not _NAME.fullmatch(self.name):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"--write-to: {self.name!r} is no name of a table: 1 to 64 letters, digits, _ and -",
            )

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, as its user says it."""

    @property
    @abstractmethod
    def identifier(self) -> str:
        """Its name in Spark SQL."""

    @abstractmethod
    def location(self, spark: SparkSession) -> str:
        """Returns the directory or URL of its files; errors as of `table_id`."""

    @abstractmethod
    def table_id(self, spark: SparkSession | None = None) -> str:
        """Delta's id of the table, which another one at its place has not.

        Raises:
            InvalidRequest: TABLE_NOT_EXIST; TABLE_REFUSED where there is something else.
            Unavailable: who keeps it does not answer.
        """

    def columns(self, spark: SparkSession | None = None) -> TableColumns:
        """Looks at the table as it is now.

        Raises:
            InvalidRequest: TABLE_REFUSED where rows cannot be written to it; and as of `table_id`.
            Unavailable: as of `table_id`.
        """
        schema = self._schema(spark)
        try:
            return TableColumns.of(schema)
        except ValueError as error:
            raise from_code("TABLE_REFUSED", f"rows cannot be written to {self.place}: {error}") from error

    def append(self, rows: DataFrame, *, app_id: str, version: int) -> bool:
        """Appends a frame as the transaction (app_id, version); see `append_once`.

        Returns:
            Whether the rows are in by this call; False when the table had this version, or a later one.

        Raises:
            Unavailable: the table has lost the commit.
        """

        def commit() -> None:
            (
                rows.writeTo(self.identifier)  # a writer that ends in save() would make a missing table
                .option("txnAppId", app_id)
                .option("txnVersion", str(version))
                .append()
            )

        return commit_once(rows.sparkSession, commit)

    @abstractmethod
    def _schema(self, spark: SparkSession | None) -> str:
        """The schema in Delta's JSON; errors as of `columns`."""
