"""Files that tasks write, read by Spark and by `deltalake`: no statistic hides a row, streams pass on each.

Contract: `delta_tables/ledger/data_files.py`. Two files with overlapping ranges, values at their ends,
texts of more than one byte a letter, times with microseconds; a filter on any column by which files are
skipped finds what a look at all rows finds, in either engine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from deltalake import QueryBuilder
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_once, append_rows_once
from delta_tables.ledger.path_ledger import PathLedger
from jobs.group.batch_parts import BatchPart, PartRows
from tests.support.ledger_rows import delivery

AT = datetime(2026, 11, 29, 23, 59, 59, 999_999, UTC)
MANY = 12


def row(number: int) -> dict[str, Any]:
    at = AT + timedelta(microseconds=number) if number % 3 else AT - timedelta(days=number)
    fate = ("ACK", "RETRY", "DEAD", "PARKED")[number % 4]
    return delivery(
        number,
        attempt=1 + number % 3,
        verdict=fate,
        message_id=("ID", "ß", "\U0001f980", "\U0010ffff", "z" * 300)[number % 5] + str(number),
        finished_at=at,
        queue_id=number % 2,
        body=b"\x00\xff" * number if number % 2 else None,
        properties=[("a", "é"), ("b", None)] if number % 2 else None,
        sends=number if number % 5 == 0 else None,
        keys=["k"] * (number % 3) if number % 4 else None,
    )


def task_rows(spark: SparkSession, rows: pa.Table, columns: list[str]) -> PartRows:
    """Rows that two tasks make: the even ones and the odd ones."""

    def read(numbers: Any) -> Any:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                odd = [place for place in range(rows.num_rows) if place % 2 == number]
                yield from rows.take(odd).to_batches(max_chunksize=4)

    return PartRows(spark, [BatchPart(read, 2)], iter, columns)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in range(MANY)], schema=DELIVERIES.arrow_schema)


@pytest.fixture
def ledger(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> PathLedger:
    made = PathLedger(tmp_path / "ledger")
    made.create(DELIVERIES)
    both = task_rows(spark, rows, DELIVERIES.column_names)
    assert append_rows_once(both, made, DELIVERIES, app_id="g", version=1, spark=spark)
    assert not append_rows_once(both, made, DELIVERIES, app_id="g", version=1, spark=spark)
    assert made.open(DELIVERIES).get_add_actions().num_rows == 2
    return made


def test_spark_reads_what_it_would_have_written(
    spark: SparkSession, ledger: PathLedger, tmp_path: Path, rows: pa.Table
) -> None:
    by_spark = PathLedger(tmp_path / "by-spark")
    by_spark.create(DELIVERIES)
    session = spark.newSession()
    frame = task_rows(session, rows, DELIVERIES.column_names).frame()
    assert append_once(frame, by_spark, DELIVERIES, app_id="g", version=1)
    found, expected = (each.read(spark, DELIVERIES).orderBy("queue_offset") for each in (ledger, by_spark))
    assert_df_equality(found, expected)
    assert ledger.open(DELIVERIES).to_pyarrow_table().sort_by("queue_offset") == by_spark.open(
        DELIVERIES
    ).to_pyarrow_table().sort_by("queue_offset")


@pytest.mark.parametrize("name", DELIVERIES.skipping)
def test_no_row_is_hidden_by_a_statistic(
    spark: SparkSession, ledger: PathLedger, rows: pa.Table, name: str
) -> None:
    ledger.read(spark, DELIVERIES).createOrReplaceTempView("by_tasks")
    delta = QueryBuilder().register("by_tasks", ledger.open(DELIVERIES))
    column = rows.column(name)
    conditions = [f"{name} IS NULL", f"{name} IS NOT NULL"]
    expected = [column.null_count, MANY - column.null_count]
    for value in pc.unique(column.drop_null()).to_pylist():
        for sign, compare in (("=", pc.equal), (">=", pc.greater_equal), ("<=", pc.less_equal)):
            conditions.append(f"{name} {sign} {literal(value)}")
            expected.append(pc.sum(compare(column, pa.scalar(value, column.type))).as_py() or 0)
    counts = ", ".join(f"(SELECT count(*) FROM by_tasks WHERE {each})" for each in conditions)
    assert list(spark.sql(f"SELECT {counts}").collect()[0]) == expected
    for condition, many in zip(conditions, expected, strict=True):
        text = f"SELECT count(*) AS n FROM by_tasks WHERE {condition}"
        assert pa.table(delta.execute(text).read_all()).column("n").to_pylist() == [many], condition


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f')}Z'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def test_a_stream_over_the_table_passes_each_row_on_and_no_rewrite(
    spark: SparkSession, ledger: PathLedger, tmp_path: Path
) -> None:
    got: list[int] = []

    def run() -> None:
        stream = ledger.read_stream(spark, DELIVERIES, {"startingVersion": "0"}).select("queue_offset")
        query = (
            stream.writeStream.foreachBatch(
                lambda frame, _: got.extend(found.queue_offset for found in frame.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert sorted(got) == list(range(MANY))
    assert ledger.open(DELIVERIES).optimize.compact()["numFilesRemoved"] == 2
    run()
    assert len(got) == MANY
