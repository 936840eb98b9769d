"""Rows for users' tables: what a column takes, and that what is kept comes back as the same value.

Contract: a row that passes is read back as it was given, in the table's own types; any other is refused with
its column and why, and nothing of it is kept.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.user_tables.columns import TableColumns
from delta_tables.user_tables.path_table import PathTable
from store_native.errors import InvalidRequest, Unavailable

LINE = {
    "type": "struct",
    "fields": [
        {"name": "article", "type": "string", "nullable": False, "metadata": {}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
    ],
}
LINES = {"type": "array", "elementType": LINE, "containsNull": False}
BY_DAY = {"type": "map", "keyType": "date", "valueType": "long", "valueContainsNull": True}
NOON = datetime(2026, 11, 27, 12, 0, 0, 123456, UTC)


def columns(kind: Any, *, nullable: bool = True, **metadata: Any) -> TableColumns:
    field = {"name": "c", "type": kind, "nullable": nullable, "metadata": metadata}
    return TableColumns.of(json.dumps({"type": "struct", "fields": [field]}))


def again(table: TableColumns, value: Any) -> Any:
    """A value as it is kept and read."""
    return table.batch([table.kept({"c": value})]).column(0).to_pylist()[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("byte", -128),
        ("short", 32_767),
        ("integer", -(2**31)),
        ("long", 2**63 - 1),
        ("double", 9.5),
        ("double", 17),
        ("double", -math.inf),
        ("float", 0.5),
        ("boolean", False),
        ("string", "Grüße \U0001f600\n"),
        ("string", ""),
        ("binary", b"\x00\xff"),
        ("decimal(10,2)", Decimal("-12345678.90")),
        ("decimal(38,38)", Decimal("0." + "9" * 38)),
        ("decimal(5,0)", 99_999),
        ("date", date(1, 1, 1)),
        ("timestamp", NOON),
        ("timestamp_ntz", NOON.replace(tzinfo=None)),
        (LINE, {"article": "nut", "price": Decimal("1.50")}),
        (LINES, [{"article": "nut", "price": None}]),
        (LINES, []),
        (BY_DAY, [(date(2026, 11, 27), 3), (date(2026, 11, 28), None)]),
        ("string", None),
    ],
)
def test_a_value_of_a_columns_type_comes_back_as_it_was_given(kind: Any, value: Any) -> None:
    given = dict(value) if kind is BY_DAY else value
    assert again(columns(kind), given) == value


def test_what_is_no_number_and_what_single_precision_rounds_comes_back_so() -> None:
    assert math.isnan(again(columns("double"), math.nan))
    assert again(columns("float"), 0.1) == pytest.approx(0.1, rel=1e-6)


def test_a_time_is_kept_in_utc_whatever_its_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5)))
    assert json.loads(columns("timestamp").kept({"c": there})) == {"c": "2026-11-27T12:00:00.123456+00:00"}


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("byte", 128, "c: 128 has no place in 8 bits"),
        ("long", 2**63, f"c: {2**63} has no place in 64 bits"),
        ("integer", 1.0, "c: a whole number, not float"),
        ("integer", True, "c: a whole number, not bool"),
        ("integer", "1", "c: a whole number, not str"),
        ("double", "9.5", "c: a number, not str"),
        ("double", Decimal("9.5"), "c: a number, not Decimal"),
        ("double", 10**400, "c: the number is larger than any float"),
        ("float", 3.5e38, "c: 3.5e+38 is larger than any float of single precision"),
        ("boolean", 1, "c: True or False, not int"),
        ("string", b"x", "c: a text, not bytes"),
        ("string", "\ud800", "c: half a character"),
        ("binary", "x", "c: bytes, not str"),
        ("decimal(4,2)", Decimal("1.234"), "c: 1.234 has more digits behind the point than decimal(4,2)"),
        ("decimal(4,2)", 100, "c: 100 has more digits than decimal(4,2)"),
        ("decimal(4,2)", 1.5, "c: a Decimal or a whole number, not float"),
        ("decimal(4,2)", Decimal("NaN"), "c: a decimal is a number, not NaN"),
        ("date", NOON, "c: a date, not datetime"),
        ("timestamp", NOON.replace(tzinfo=None), "c: 2026-11-27 12:00:00.123456 has no zone"),
        (
            "timestamp",
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
            "before or behind all times",
        ),
        ("timestamp_ntz", NOON, "has a zone, and the column's times have none"),
        ("timestamp", "2026-11-27", "c: a datetime with a zone, not str"),
        (LINE, {"price": 1}, "c: article: it must not be null"),
        (LINE, {"article": "nut", "prize": 1}, "c: there is no field 'prize'"),
        (LINE, [1], "c: a mapping, not list"),
        (LINES, [None], "c: element: it must not be null"),
        (LINES, "nut", "c: a list, not str"),
        (
            LINES,
            [{"article": "nut", "price": 0.5}],
            "c: element: price: a Decimal or a whole number, not float",
        ),
        (BY_DAY, {None: 1}, "c: key: it must not be null"),
        (BY_DAY, {"2026-11-27": 1}, "c: key: a date, not str"),
    ],
)
def test_any_other_value_is_refused_with_its_column(kind: Any, value: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        columns(kind).kept({"c": value})
    assert why in str(refused.value)


def test_a_column_that_is_not_there_and_one_that_must_be_there_are_named() -> None:
    with pytest.raises(ValueError, match="the table has no column 'C': it has c"):
        columns("string").kept({"C": "x"})
    with pytest.raises(ValueError, match="c: it must not be null"):
        columns("string", nullable=False).kept({})
    with pytest.raises(ValueError, match="c: 3 characters at most, not 4"):
        columns("string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)").kept({"c": "four"})
    made: dict[str, Any] = {"delta.generationExpression": "a + 1"}
    with pytest.raises(ValueError, match="c: the table makes its values"):
        columns("integer", **made).kept({"c": 1})
    assert columns("integer", **made).kept({}) == "{}"


def test_a_type_that_rows_have_no_values_of_may_be_left_out_where_it_may_be_null() -> None:
    with pytest.raises(ValueError, match="c: rows have no values of its type"):
        columns("variant").kept({"c": 1})
    assert columns("variant").kept({}) == "{}"
    with pytest.raises(ValueError, match="c must not be null, and rows have no values of its type"):
        columns("variant", nullable=False)


def test_a_row_that_was_kept_before_a_column_was_dropped_or_changed_no_longer_fits() -> None:
    kept = columns("string").kept({"c": "x"})
    other = json.dumps({"type": "struct", "fields": []})
    with pytest.raises(ValueError, match="the table has no column 'c'"):
        TableColumns.of(other).batch([kept])
    with pytest.raises(TypeError, match="c: a whole number, not str"):
        columns("integer").batch([kept])
    assert columns("long").batch([columns("integer").kept({"c": 7})]).column(0).to_pylist() == [7]


def test_a_table_is_looked_at_and_never_made(tmp_path: Path) -> None:
    path = tmp_path / "invoices"
    with pytest.raises(InvalidRequest, match=r"TABLE_NOT_EXIST: there is no Delta table at .*invoices"):
        PathTable("invoices", str(path)).columns()
    assert not path.exists()
    DeltaTable.create(str(path), schema=pa.schema([pa.field("order", pa.int64(), nullable=False)]))
    (order,) = PathTable("invoices", str(path)).columns().fields
    assert (order.name, order.nullable, order.type.arrow) == ("order", False, pa.int64())


def test_what_cannot_be_read_and_a_place_that_does_not_answer_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "invoices"
    DeltaTable.create(str(path), schema=pa.schema([pa.field("order", pa.int64())]))
    (log,) = (path / "_delta_log").glob("*.json")
    log.write_text(log.read_text()[:50])
    with pytest.raises(InvalidRequest, match=r"TABLE_REFUSED: what is at .*invoices cannot be read"):
        PathTable("invoices", str(path)).columns()
    with pytest.raises(Unavailable, match=r"where hdfs://.* is does not answer, or .*: .*Hdfs"):
        PathTable("invoices", "hdfs://nobody/invoices").table_id()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "ä"])
def test_a_name_that_is_no_files_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--write-to: .* is no name of a table"):
        PathTable(name, "/t")


def test_a_whole_number_that_a_float_does_not_hold_is_refused() -> None:
    table = columns("double")
    assert again(table, 2**53) == float(2**53)
    with pytest.raises(ValueError, match="c: a float does not hold the whole number exactly"):
        table.kept({"c": 2**53 + 1})


def test_a_number_that_is_far_too_large_is_said_by_its_size() -> None:
    with pytest.raises(ValueError, match="c: a number of 16,610 bits has no place in 64 bits"):
        columns("long").kept({"c": 10**5000})


def test_a_varchar_inside_another_type_takes_no_rows() -> None:
    """Delta checks it behind the call: one that is too long would hold up the table."""
    kind = {"type": "struct", "fields": [{"name": "v", "type": "string", "nullable": True, "metadata": {}}]}
    table = columns(kind, __CHAR_VARCHAR_TYPE_STRING="struct<v:varchar(3)>")
    with pytest.raises(ValueError, match="c: rows have no values of its type"):
        table.kept({"c": {"v": "x"}})
