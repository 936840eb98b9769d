"""Rows that are due at a time wait what is left of their delay, and are the same rows however late it is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_streaming.sink.chunks import TopicChunks, digest
from structured_streaming.sink.remaining_delay import DUE_AT, as_sent, content, counts_down

LEVEL_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 7_200_000)
DUE_MS = 1_795_219_200_000


def rows(*levels: int | None, due_ms: int | None = DUE_MS) -> pa.Table:
    us = None if due_ms is None else due_ms * 1_000
    return pa.table(
        {
            "body": pa.array([b"x"] * len(levels)),
            "delay_level": pa.array(levels, pa.int32()),
            DUE_AT: pa.array([us] * len(levels), pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize(
    ("left_ms", "level"),
    [(10_001, 4), (29_999, 4), (10_000, 3), (9_999, 3), (1_000, 1), (1, 1), (0, None), (-1, None)],
)
def test_what_is_left_is_the_shortest_level_that_is_as_long(left_ms: int, level: int | None) -> None:
    sent = as_sent(rows(4), LEVEL_MS, DUE_MS - left_ms)
    assert sent.to_pydict() == {"body": [b"x"], "delay_level": [level]}
    assert sent.schema.field("delay_level").type == pa.int32()


def test_a_row_without_a_delay_or_a_time_is_as_it_was() -> None:
    assert as_sent(rows(None, 0), LEVEL_MS, 0).column("delay_level").to_pylist() == [None, 0]
    late = as_sent(rows(3, due_ms=None), LEVEL_MS, 2 * DUE_MS)
    assert late.column("delay_level").to_pylist() == [3]


def test_a_level_above_the_last_is_the_last() -> None:
    assert as_sent(rows(99), LEVEL_MS, DUE_MS - 7_000_000).column("delay_level").to_pylist() == [99]
    assert as_sent(rows(99), LEVEL_MS, DUE_MS - 9).column("delay_level").to_pylist() == [1]


def test_levels_may_come_in_any_order() -> None:
    assert as_sent(rows(1), (60_000, 1_000, 5_000), DUE_MS - 4_000).column("delay_level").to_pylist() == [3]


@given(st.sampled_from(range(1, 7)), st.integers(-10_000, 8_000_000))
def test_a_row_never_comes_early_nor_waits_longer_than_its_delay(level: int, left_ms: int) -> None:
    (sent,) = as_sent(rows(level), LEVEL_MS, DUE_MS - left_ms).column("delay_level").to_pylist()
    waits_ms = 0 if sent is None else LEVEL_MS[sent - 1]
    assert waits_ms <= LEVEL_MS[level - 1]
    assert waits_ms >= min(left_ms, LEVEL_MS[level - 1])


def test_when_a_row_is_due_is_no_part_of_its_content() -> None:
    plain = content(rows(3, 4))
    assert plain.column_names == ["body", "delay_level"]
    assert digest(rows(3, 4)) == digest(rows(3, 4, due_ms=1)) == digest(plain)
    given = [rows(3, 4).to_batches()[0], plain.to_batches()[0]]
    (counting,), (counted,) = (list(TopicChunks("t", 10).cut([batch])) for batch in given)
    assert counting.digest == counted.digest
    assert (counts_down(counting.rows), counts_down(counted.rows)) == (True, False)
