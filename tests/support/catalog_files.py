"""The files of a ledger in the session's own catalog: deltalake reads and fills them without Spark's queries.

Owns where that catalog keeps them. For what a test looks at: a query of Spark's costs more than a batch does.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from delta_tables.ledger.path_ledger import PathLedger


def files_of(spark: SparkSession, schema: str) -> PathLedger:
    """The same tables as a ledger on a path.

    Args:
        spark: The session.
        schema: Of ``spark_catalog``, whose tables are Spark's to keep.
    """
    home = spark.conf.get("spark.sql.warehouse.dir")
    assert home is not None
    return PathLedger(Path(urlparse(home).path) / f"{schema}.db")
