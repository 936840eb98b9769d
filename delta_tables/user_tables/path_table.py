"""A user's Delta table in a directory, or at a URL: it is looked at without Spark.

Owns what each failure to open it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_tables.engine_text import said
from delta_tables.user_tables.user_table import UserTable
from store_native.errors import from_code

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PathTable(UserTable):
    """A table by its place.

    Attributes:
        path: of the directory, absolute, or a URL.
    """

    path: str

    @property
    def place(self) -> str:
        """The directory or URL."""
        return self.path

    @property
    def identifier(self) -> str:
        """As Spark SQL names a table by its place."""
        return f"delta.`{self.path.replace('`', '``')}`"

    def location(self, spark: SparkSession) -> str:
        """The directory or URL."""
        return self.path

    def table_id(self, spark: SparkSession | None = None) -> str:
        """Delta's id of the table; see `UserTable`."""
        return str(self._open().metadata().id)

    def append(self, rows: DataFrame, *, app_id: str, version: int) -> bool:
        """Appends, and looks whether the table has it: where it was moved away, Delta makes another."""
        is_new = super().append(rows, app_id=app_id, version=version)
        known = self._open().transaction_version(app_id)
        if known is None or known < version:
            raise from_code("SERVICE_NOT_AVAILABLE", f"the table {self.name} has lost a commit")
        return is_new

    def _schema(self, spark: SparkSession | None) -> str:
        return str(self._open().schema().to_json())

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.path)
        except TableNotFoundError as error:
            what = f"there is no Delta table at {self.path}: {said(error)}"
            raise from_code("TABLE_NOT_EXIST", what) from error
        except DeltaError as error:
            what = f"what is at {self.path} cannot be read as a Delta table: {said(error)}"
            raise from_code("TABLE_REFUSED", what) from error
        except OSError as error:
            what = f"where {self.path} is does not answer, or takes no credentials: {said(error)}"
            raise from_code("SERVICE_NOT_AVAILABLE", what) from error
