"""Rows of every type in a user's table as Spark makes it, with columns that the table fills itself.

Contract: what a row was given is what Spark reads; an append that is repeated adds nothing, and neither the
table's columns nor what others wrote is touched.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delta_tables.user_tables.location import UserTable
from jobs.group.map_arrow import map_in_arrow
from jobs.table_rows.write_task import WriteTask

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
    table = UserTable("t", str(path))
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
