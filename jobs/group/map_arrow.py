"""`DataFrame.mapInArrow` without pandas.

Owns one workaround: PySpark 4.2 demands pandas for mapInArrow although the path is Arrow only, and warns
when it finds pandas 3. Where pandas is there (Databricks), or the session is remote, the public method is
used.
"""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from delta_tables.task_rows import ArrowFunction


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
    """Maps the Arrow batches of each partition.

    Args:
        rows: the frame.
        function: gets an iterator of a partition's batches, yields batches of the schema.
        schema: the result's, or its DDL.
    """
    if find_spec("pandas") is not None or not hasattr(rows, "_jdf"):
        return rows.mapInArrow(function, schema)

    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.udf import _create_udf

    udf = _create_udf(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[rows[name] for name in rows.columns])
    return ClassicDataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
