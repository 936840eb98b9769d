"""How large a batch is made by the time its messages take."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.accumulators import Accumulator

from jobs.frames.frame_handler import FrameHandler
from jobs.group.batch_size import (
    FIRST_CALLS,
    MOST_GROWTH,
    MOST_ROWS_OF_A_TASK,
    BatchSize,
    Handled,
    HandlingTime,
    calls_at_a_time,
)
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from lakemq.handler import handler, vectorised
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
        (Handled(800, 4.0, skipped=400), 2_000, 50),  # nobody was called for those an operator gave up
        (Handled(1, 0.1), 4_000, 100),
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


def test_a_batch_that_only_parked_says_nothing_where_nothing_is_known_of_the_handler(tmp_path: Path) -> None:
    other = BatchSize(tmp_path / "bound.json", 200_000, 10.0, lambda: 2, 20, "app:other")
    other.learn(Handled(0, 0.1, parked=30))
    assert bound(tmp_path) is None
    size(tmp_path).learn(Handled(800, 40.0))
    other.learn(Handled(0, 0.1, parked=30))
    assert bound(tmp_path) == 400


def test_what_is_measured_is_noted_as_the_handlers_own_also_where_another_measured_the_same(
    tmp_path: Path,
) -> None:
    size(tmp_path).learn(Handled(800, 40.0))
    BatchSize(tmp_path / "bound.json", 200_000, 10.0, lambda: 2, 20, "app:other").learn(Handled(800, 40.0))
    assert batch_bound.read(tmp_path / "bound.json", "app:other") == 400


def test_until_something_is_known_a_task_is_as_large_as_one_may_be(tmp_path: Path) -> None:
    chosen = size(tmp_path)
    assert chosen.rows_of_a_task == MOST_ROWS_OF_A_TASK
    chosen.begin(single=False)
    assert chosen.rows_of_a_task == MOST_ROWS_OF_A_TASK


def test_a_restart_of_a_slow_handler_gives_each_message_a_task(tmp_path: Path) -> None:
    size(tmp_path).learn(Handled(800, 40_000.0))
    again = size(tmp_path)
    again.begin(single=True)
    assert again.rows_of_a_task == 1


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


def test_what_the_tasks_of_a_batch_took_is_added_up() -> None:
    context = SimpleNamespace(accumulator=lambda value, param: Accumulator(0, value, param))
    time = HandlingTime(cast(Any, SimpleNamespace(sparkContext=context)))
    assert time.total == Handled(0, 0.0, 0, 0, 0, 0, 0)
    time(Handled(1, 2.0, 3, 4, 5, 6, 7))
    time(Handled(10, 20.0, 30, 40, 50, 60, 70))
    assert time.total == Handled(11, 22.0, 33, 44, 55, 66, 77)
    of_a_task = time._sum.accum_param  # noqa: SLF001 - a task begins with it
    assert of_a_task.zero(time.total) == Handled()


def one(message: object) -> None:
    """A handler of single messages."""


@handler(thread_safe=False)
def alone(message: object) -> None:
    """A handler that no two threads may call at a time."""


@vectorised
def many(messages: object) -> None:
    """A handler of batches."""


@pytest.mark.parametrize(
    ("target", "small", "calls"),
    [
        (HandlerTarget(f"{__name__}:one"), True, 7),
        (HandlerTarget(f"{__name__}:alone"), True, 1),
        (HandlerTarget(f"{__name__}:many"), False, 1),
        (FrameHandler("frames", lambda messages: messages), True, 500),
    ],
)
def test_single_messages_are_handled_at_once_as_the_host_allows_and_begin_with_a_small_batch(
    target: HandlerTarget | FrameHandler, small: bool, calls: int
) -> None:
    assert calls_at_a_time(target, HandlerHost(concurrency=7)) == (small, calls)
