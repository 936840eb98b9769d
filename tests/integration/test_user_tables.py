"""Rows of every type in a user's table as Spark makes it, with columns that the table fills itself.

Contract: what a row was given is what Spark reads; an append that is repeated adds nothing, and neither the
table's columns nor what others wrote is touched.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delta_tables.user_tables.catalog_table import CatalogTable
from delta_tables.user_tables.path_table import PathTable
from jobs.group.map_arrow import map_in_arrow
from jobs.table_rows.write_task import WriteTask
from store_native.errors import InvalidRequest

NOON = datetime(2026, 11, 27, 12, 0, 0, 123456, UTC)
TYPES = """
  number BIGINT NOT NULL, tiny TINYINT, small SMALLINT, plain INT, single FLOAT, double DOUBLE,
  price DECIMAL(10,2), text STRING, short VARCHAR(5), done BOOLEAN, raw BINARY, day DATE, at TIMESTAMP,
  local TIMESTAMP_NTZ,
  line STRUCT<article: STRING, prices: ARRAY<DECIMAL(5,2)>>, lines ARRAY<STRUCT<n: INT>>,
  by_day MAP<DATE, BIGINT>, twice BIGINT GENERATED ALWAYS AS (number * 2),
  id BIGINT GENERATED ALWAYS AS IDENTITY
"""
ROW: dict[str, Any] = {
    "number": 2**40,
    "tiny": -128,
    "small": 300,
    "plain": -7,
    "single": 0.5,
    "double": 9.75,
    "price": Decimal("-12345678.90"),
    "text": "Grüße",
    "short": "fives",
    "done": True,
    "raw": b"\x00\xff",
    "day": date(1999, 12, 31),
    "at": NOON,
    "local": NOON.replace(tzinfo=None),
    "line": {"article": "nut", "prices": [Decimal("1.50"), None]},
    "lines": [{"n": 1}, {}],
    "by_day": {date(2026, 11, 27): 3},
}


def test_rows_of_every_type_are_read_as_they_were_given_and_a_repeat_adds_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "of all `types`"
    quoted = str(path).replace("`", "``")
    spark.sql(
        f"CREATE TABLE delta.`{quoted}` ({TYPES}) USING delta PARTITIONED BY (plain) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    table = PathTable("t", str(path))
    columns = table.columns()
    assert columns.not_taken == dict.fromkeys(("twice", "id"), "the table makes its values")
    rows = spark.createDataFrame([(columns.kept(row),) for row in (ROW, {"number": 1})], "row_json STRING")
    schema = StructType.fromJson(columns.spark_schema)
    made = map_in_arrow(rows, WriteTask(columns, "t"), schema)
    assert table.append(made, app_id="a", version=3)
    assert not table.append(made, app_id="a", version=3)
    assert not table.append(made, app_id="a", version=2)

    first, second = spark.read.format("delta").load(str(path)).orderBy("number").toArrow().to_pylist()
    assert {name for name, value in first.items() if value is not None} == {"number", "twice", "id"}
    assert (first["twice"], second["twice"]) == (2, 2**41)
    expected = ROW | {
        "at": NOON,
        "lines": [{"n": 1}, {"n": None}],
        "by_day": [(date(2026, 11, 27), 3)],
    }
    assert {name: second[name] for name in expected} == expected


def test_a_table_of_a_catalog_takes_rows_by_its_name_unless_it_fills_columns_itself(
    spark: SparkSession,
) -> None:
    schema = "spark_catalog.of_users"
    spark.sql(f"CREATE SCHEMA {schema}")
    try:
        spark.sql(
            f"CREATE TABLE {schema}.plain (number BIGINT NOT NULL, short VARCHAR(5), price DECIMAL(5,2), "
            "level INT DEFAULT 5) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.feature.allowColumnDefaults' = 'supported', 'delta.enableChangeDataFeed' = 'true')"
        )
        table = CatalogTable("t", f"{schema}.plain")
        columns = table.columns(spark)
        with pytest.raises(ValueError, match="short: 5 characters at most, not 6"):
            columns.kept({"number": 1, "short": "sixsix"})
        kept = [(columns.kept(row),) for row in ({"number": 1, "price": Decimal("9.50")}, {"number": 2})]
        rows = spark.createDataFrame(kept, "row_json STRING")
        made = map_in_arrow(rows, WriteTask(columns, "t"), StructType.fromJson(columns.spark_schema))
        assert table.append(made, app_id="a", version=3)
        assert not table.append(made, app_id="a", version=3)
        assert not table.append(made, app_id="a", version=2)
        assert table.append(made.limit(1), app_id="a", version=4)
        found = spark.sql(f"SELECT number, price, level FROM {schema}.plain ORDER BY number").collect()
        assert [tuple(row) for row in found] == [
            *[(1, Decimal("9.50"), None)] * 2,
            (2, None, None),
        ]
        assert table.table_id(spark) == CatalogTable("u", f"{schema}.plain").table_id(spark)

        spark.sql(f"CREATE TABLE {schema}.filled (a INT, b INT GENERATED ALWAYS AS (a + 1)) USING delta")
        spark.sql(f"CREATE TABLE {schema}.other (a INT) USING parquet")
        spark.sql(f"CREATE VIEW {schema}.seen AS SELECT * FROM {schema}.plain")
        for name, code, said in (
            ("filled", "TABLE_REFUSED", "may have generated columns"),
            ("other", "TABLE_REFUSED", "is a table of parquet, not of Delta"),
            ("seen", "TABLE_NOT_EXIST", "seen` is a view"),
            ("none", "TABLE_NOT_EXIST", "cannot be found"),
        ):
            with pytest.raises(InvalidRequest, match=f"{code}.*{schema}.{name}.*{said}"):
                CatalogTable("t", f"{schema}.{name}").columns(spark)
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")
