"""The rows of a verdict: bounds, plain data, and nothing of a class that might do more than hold."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from jobs.handler.table_rows import MOST_ROWS, plain_rows, rows_in
from lakemq.handler import TableRow


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Price(Decimal):
    pass


class Day(datetime):
    pass


def plain(**values: Any) -> dict[str, Any]:
    packed = plain_rows([TableRow("t", values)])
    assert packed is not None
    ((table, found),) = rows_in(packed)
    assert table == "t"
    return found


def test_what_goes_on_is_of_pythons_own_types() -> None:
    noon = Day(2026, 11, 27, 12, tzinfo=timezone(timedelta(hours=1)))
    found = plain(
        colour=Colour.RED, size=Size.LARGE, price=Price("1.5"), at=noon, day=date(2026, 1, 2), none=None
    )
    assert found == {
        "colour": "red",
        "size": 3,
        "price": Decimal("1.5"),
        "at": datetime(2026, 11, 27, 11, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "none": None,
    }
    assert [type(value) for value in found.values()] == [str, int, Decimal, datetime, date, type(None)]
    assert plain(x=({"a": [bytearray(b"x"), True]}, 0.5)) == {"x": [{"a": [b"x", True]}, 0.5]}


def test_a_single_row_is_one() -> None:
    packed = plain_rows(TableRow("t", {"a": 1}))
    assert packed is not None
    assert rows_in(packed) == [("t", {"a": 1})]


def test_a_float_keeps_its_sign() -> None:
    assert math.copysign(1, plain(x=-0.0)["x"]) == -1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({(1, 2): 3}, "x: a mapping's keys are single values"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))), "x: 9999-12-31 .* behind all times"),
    ],
)
def test_what_has_no_place_is_named_by_its_column(value: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        plain(x=value)


def test_no_rows_are_nothing() -> None:
    assert plain_rows(()) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["x"], "a verdict writes TableRow, not str"),
        ([TableRow(b"t", {})], "the name of a table is a text, not bytes"),  # type: ignore[arg-type]
        ([TableRow("t", [("a", 1)])], "the values of a row are a mapping, not list"),  # type: ignore[arg-type]
        ([TableRow("t", {1: 1})], "the name of a column is a text, not int"),  # type: ignore[dict-item]
        ([TableRow("t", {"a": object()})], "a: no table takes object"),
        ([TableRow("t", {})] * (MOST_ROWS + 1), "a verdict writes 1,000 rows at most, not 1,001"),
        ([TableRow("t", {"a": "x" * (4 << 20)})], "the rows of a verdict take 4,194,304 bytes at most, not"),
    ],
)
def test_what_is_no_row_or_too_much_is_refused(given: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        plain_rows(given)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="a: lists and mappings have 32 levels at most"):
        plain_rows([TableRow("t", {"a": endless})])
