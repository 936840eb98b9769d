"""A table's checks: their words in SQL, and the rows they refuse where a task writes the table's files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from delta_tables.check import AtLeast, Check, OneOf
from store_native.errors import LakeMQError

CHECK = Check("both", (AtLeast("n", 1), OneOf("word", ("a", "b"))))


def rows(numbers: list[int | None], words: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"n": pa.array(numbers, pa.int32()), "word": pa.array(words, pa.string())}
    )


def test_its_conditions_are_joined_in_sql() -> None:
    assert CHECK.sql == "n >= 1 AND word IN ('a', 'b')"


def test_rows_for_which_it_holds_are_let_through() -> None:
    CHECK.ensure(rows([1, 2, 2**31 - 1], ["a", "b", "a"]))
    CHECK.ensure(rows([], []))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([1, 0], ["a", "a"]),
        ([1, None], ["a", "a"]),
        ([1, 1], ["a", "A"]),
        ([1, 1], ["a", None]),
        ([-1], ["a"]),
    ],
)
def test_one_row_for_which_it_does_not_hold_is_refused(
    numbers: list[int | None], words: list[str | None]
) -> None:
    with pytest.raises(
        LakeMQError, match=r"the check both \(n >= 1 AND word IN \('a', 'b'\)\) does not hold"
    ):
        CHECK.ensure(rows(numbers, words))
