"""How large a batch is made by the time its messages take."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.group.batch_size import FIRST_CALLS, MOST_GROWTH, MOST_ROWS_OF_A_TASK, BatchSize, Handled
from structured_streaming.source import batch_bound


def size(directory: Path, *, most: int = 200_000, cores: int = 2, concurrency: int = 20) -> BatchSize:
    return BatchSize(directory / "bound.json", most, 10.0, lambda: cores, concurrency)


def bound(directory: Path) -> int | None:
    return batch_bound.read(directory / "bound.json")


def test_the_first_batch_of_single_messages_is_small_and_of_batches_is_not_bounded(tmp_path: Path) -> None:
    size(tmp_path / "batches").begin(single=False)
    assert bound(tmp_path / "batches") is None
    single = size(tmp_path / "single")
    single.begin(single=True)
    assert bound(tmp_path / "single") == FIRST_CALLS * 20 * 2
    assert single.rows_of_a_task == FIRST_CALLS
    size(tmp_path / "few", most=7).begin(single=True)
    assert bound(tmp_path / "few") == 7


@pytest.mark.parametrize(
    ("handled", "rows", "of_a_task"),
    [
        (Handled(800, 4.0), 4_000, 100),  # 100 ms a message: 200 a second in each of two tasks, for 10 s
        (Handled(800, 40.0), 400, 10),  # a second a message
        (Handled(800, 40_000.0), 40, 1),  # the least: one call for each thread
        (Handled(100_000, 0.1), 200_000, MOST_ROWS_OF_A_TASK),  # never above the settings' bound
        (Handled(2, 0.1), 4_000, 100),  # too few to keep twenty threads busy: 100 ms a message all the same
    ],
)
def test_the_next_batch_lasts_about_as_long_as_wanted(
    tmp_path: Path, handled: Handled, rows: int, of_a_task: int
) -> None:
    chosen = size(tmp_path)
    chosen.learn(handled)
    assert bound(tmp_path) == rows
    assert chosen.rows_of_a_task == of_a_task


@pytest.mark.parametrize("handled", [Handled(), Handled(0, 3.0), Handled(5, 0.0)])
def test_nothing_is_learnt_from_nothing(tmp_path: Path, handled: Handled) -> None:
    size(tmp_path).learn(handled)
    assert bound(tmp_path) is None


def test_a_batch_that_only_parked_lets_the_next_be_twice_as_large(tmp_path: Path) -> None:
    chosen = size(tmp_path, most=100)
    chosen.learn(Handled(8, 400.0))
    assert bound(tmp_path) == 40
    for rows in (80, 100, 100):
        chosen.learn(Handled(0, 0.1, parked=30))
        assert bound(tmp_path) == rows


def test_calls_that_were_quick_at_first_make_no_batch_of_hours(tmp_path: Path) -> None:
    chosen = size(tmp_path)
    chosen.begin(single=True)
    rows = FIRST_CALLS * 20 * 2
    for _ in range(3):
        chosen.learn(Handled(rows, 0.01))  # as with an answer from a cache
        rows *= MOST_GROWTH
        assert bound(tmp_path) == rows
    chosen.learn(Handled(rows, 0.01))
    assert bound(tmp_path) == 200_000
    chosen.learn(Handled(200_000, 10_000.0))  # a second a message: the next one fits
    assert bound(tmp_path) == 400


def test_a_restart_goes_on_with_what_was_measured(tmp_path: Path) -> None:
    size(tmp_path).learn(Handled(800, 4.0))
    again = size(tmp_path)
    again.begin(single=True)
    assert bound(tmp_path) == 4_000
    assert again.rows_of_a_task == 100


@pytest.mark.parametrize(("single", "rows"), [(True, FIRST_CALLS * 20 * 2), (False, 200_000)])
def test_another_handlers_measure_counts_for_nothing(tmp_path: Path, single: bool, rows: int) -> None:
    size(tmp_path).learn(Handled(800, 40.0))
    assert bound(tmp_path) == 400
    BatchSize(tmp_path / "bound.json", 200_000, 10.0, lambda: 2, 20, "app:other").begin(single=single)
    assert bound(tmp_path) == rows


def test_a_bound_that_cannot_be_noted_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bound.json").mkdir()
    size(tmp_path).learn(Handled(800, 4.0))
    assert "the size of the next batch cannot be noted" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", "{}", '{"rows": "7"}', '{"rows": 0}', '{"rows": -1}', "null"]
)
def test_a_bound_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "bound.json").write_text(text)
    assert bound(tmp_path) is None
