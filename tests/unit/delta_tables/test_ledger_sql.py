"""SQL over a ledger: it only reads, and its results are plain."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from delta_tables.views import TABLES, VIEWS
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, delivery


def test_results_hold_plain_arrow_types(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [delivery(0, verdict="DEAD", body=b"\xff", properties=[("a", "b")])])
    result = LedgerReader(str(ledger)).sql("SELECT keys, tags, body, properties FROM deliveries")
    assert "view" not in str(result.schema)
    assert result.to_pylist() == [
        {"keys": ["K0", "all"], "tags": "A", "body": b"\xff", "properties": [("a", "b")]}
    ]


def test_wrong_sql_is_refused_with_the_engines_reason(ledger: PathLedger) -> None:
    with pytest.raises(InvalidRequest, match="no_such_column"):
        LedgerReader(str(ledger)).sql("SELECT no_such_column FROM deliveries")


@pytest.mark.parametrize(
    "text",
    [
        "COPY (SELECT 1) TO '{out}'",
        "  -- SELECT\n/* SELECT */ copy (SELECT 1) to '{out}'",
        "/* /* */ SELECT 1 */ COPY (SELECT 1) TO '{out}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "DESC ANALYZE VERBOSE COPY (SELECT 1) TO '{out}'",
        "EXPLAIN FORMAT TREE COPY (SELECT 1) TO '{out}'",
        "SELECT 1; COPY (SELECT 1) TO '{out}'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{out}'",
        "CREATE TABLE t AS SELECT 1",
        "SELECT * INTO t FROM deliveries",
        "DROP TABLE deliveries",
        "INSERT INTO deliveries SELECT * FROM deliveries",
        "WITH a AS (SELECT 1) INSERT INTO deliveries SELECT * FROM a",
        "DELETE FROM deliveries",
        "SET datafusion.execution.batch_size = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "ATTACH 'other.db' AS other",
        "",
        "selected",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(
    ledger: PathLedger, text: str, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    reader = LedgerReader(str(ledger))
    reader.sql("SELECT 1")
    with pytest.raises(InvalidRequest) as refused:
        reader.sql(text.replace("{out}", str(tmp_path / "out.csv")))
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert not (tmp_path / "out.csv").exists()
    assert before == [path for path in sorted(tmp_path.rglob("*")) if path in before]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  select 1;",
        "-- COPY\n(SELECT 1)",
        "/* COPY t TO 'x' */ WITH a AS (SELECT 1 AS n) SELECT n FROM a",
        "VALUES (1), (2)",
        "FROM deliveries SELECT count(*)",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE VERBOSE SELECT 1",
        "DESCRIBE deliveries",
        "desc group_progress;",
        "SELECT 'COPY (SELECT 1) TO x' AS text",
    ],
)
def test_statements_that_read_are_taken(ledger: PathLedger, text: str) -> None:
    assert LedgerReader(str(ledger)).sql(text).num_rows > 0


def test_two_columns_of_one_name_are_refused(ledger: PathLedger) -> None:
    join = "FROM (SELECT 1 AS n) a CROSS JOIN (SELECT 2 AS n) b"
    with pytest.raises(InvalidRequest, match="columns are called n: AS"):
        LedgerReader(str(ledger)).sql(f"SELECT a.n, b.n {join}")
    assert LedgerReader(str(ledger)).sql(f"SELECT a.n, b.n AS m {join}").to_pylist() == [{"n": 1, "m": 2}]


def test_a_directory_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no ledger"):
        LedgerReader(tmp_path)


def test_a_table_that_is_not_there_reads_as_an_empty_one_and_is_not_made(tmp_path: Path) -> None:
    """An archive's ledger, or one of an earlier release: who may only read it reads it."""
    ledger = PathLedger(tmp_path)
    ledger.create(MESSAGES)
    reader = LedgerReader(str(tmp_path))
    for name in (*(table.name for table in TABLES), *VIEWS):
        assert reader.sql(f"SELECT * FROM {name}").num_rows == 0, name
    for table in TABLES:
        schema = reader.sql(f"SELECT * FROM {table.name}").schema
        assert schema == LedgerReader(str(made_whole(tmp_path))).sql(f"SELECT * FROM {table.name}").schema
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["messages"]


def made_whole(root: Path) -> Path:
    """A ledger with all of its tables, empty."""
    PathLedger(root / "whole").create(*TABLES)
    return root / "whole"
