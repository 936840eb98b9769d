"""A user's Delta table in a catalog, such as Unity Catalog's: all that is asked of it goes through Spark SQL.

Owns what the catalog says of a table, and what it does not say.

Invariants: a table that fills columns itself is refused where the catalog tells so, for it does not tell
which: a row that has nothing for such a column would be null there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from delta_tables.user_tables.user_table import UserTable
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MADE = {"generatedColumns": "generated", "identityColumns": "identity"}
_WITH_FEATURES = 7
"""The writer version of a table whose features are named; below, a version implies them, used or not."""


@dataclass(frozen=True)
class CatalogTable(UserTable):
    """A table by its name.

    Attributes:
        table: `catalog.schema.table`.
    """

    table: str
    needs_spark: ClassVar[bool] = True

    @property
    def place(self) -> str:
        """The name."""
        return self.table

    @property
    def identifier(self) -> str:
        """The name."""
        return self.table

    def location(self, spark: SparkSession) -> str:
        """The URL of its files."""
        return str(self._detail(spark)["location"])

    def table_id(self, spark: SparkSession | None = None) -> str:
        """Delta's id of the table; see `UserTable`."""
        return str(self._detail(spark)["id"])

    def _schema(self, spark: SparkSession | None) -> str:
        detail = self._detail(spark)
        made = [word for name, word in _MADE.items() if name in (detail["tableFeatures"] or ())]
        if made and detail["minWriterVersion"] >= _WITH_FEATURES:
            raise from_code(
                "TABLE_REFUSED",
                f"{self.table} may have {' and '.join(made)} columns, and a catalog does not say which: name "
                "the table by the place of its files, as DESCRIBE DETAIL has it",
            )
        assert spark is not None, "a table in a catalog is looked at through Spark"
        return spark.read.table(self.table).schema.json()

    def _detail(self, spark: SparkSession | None) -> dict[str, Any]:
        from pyspark.errors import AnalysisException, PySparkException

        assert spark is not None, "a table in a catalog is looked at through Spark"
        try:
            found = spark.sql(f"DESCRIBE DETAIL {self.table}").head()
        except AnalysisException as error:
            what = f"there is no Delta table {self.table}: {_first_line(error)}"
            raise from_code("TABLE_NOT_EXIST", what) from error
        except PySparkException as error:
            what = f"the catalog says nothing of {self.table}: {_first_line(error)}"
            raise from_code("SERVICE_NOT_AVAILABLE", what) from error
        assert found is not None, f"Delta says nothing of {self.table}"
        detail = found.asDict()
        if detail["format"] != "delta":
            raise from_code("TABLE_REFUSED", f"{self.table} is a table of {detail['format']}, not of Delta")
        return detail


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
