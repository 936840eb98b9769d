"""What takes long is what takes longer than calls of that handler do."""

from __future__ import annotations

import math

import pytest

from jobs.handler.usual_time import SHORTEST_LONG_S, UsualTime

SECOND = 1_000_000


def test_before_a_call_has_ended_one_is_long_that_takes_as_long_as_its_batch_may() -> None:
    usual = UsualTime()
    usual.learn([])
    assert usual.long_s() == math.inf
    assert usual.long_s(unknown_s=30.0) == 30.0
    assert usual.long_s([SECOND], unknown_s=30.0) == 3.0


def test_what_one_took_behind_its_batch_counts_until_a_batch_says_more() -> None:
    usual = UsualTime()
    usual.guess(40 * SECOND)
    assert usual.long_s(unknown_s=30.0) == 120.0
    assert usual.long_s([10_000] * 28, unknown_s=30.0) == SHORTEST_LONG_S, "calls of this batch say more"
    usual.learn([10_000])
    assert usual.long_s(unknown_s=30.0) == SHORTEST_LONG_S
    usual.guess(600 * SECOND)
    assert usual.long_s(unknown_s=30.0) == SHORTEST_LONG_S, "one of many"


@pytest.mark.parametrize(("took_s", "long_s"), [(0.0, SHORTEST_LONG_S), (0.01, SHORTEST_LONG_S), (20, 60.0)])
def test_three_times_as_long_as_usual_is_long_and_a_second_at_least(took_s: float, long_s: float) -> None:
    took_us = [round(took_s * SECOND)] * 3
    usual = UsualTime()
    assert usual.long_s(took_us) == pytest.approx(long_s), "of the calls of this batch"
    usual.learn(took_us)
    assert usual.long_s() == pytest.approx(long_s)


def test_few_calls_that_take_long_make_no_usual_and_neither_does_a_step_of_the_clock() -> None:
    usual = UsualTime()
    usual.learn([10_000] * 6 + [300 * SECOND] * 2 + [3_600 * SECOND, -3_600 * SECOND])
    assert usual.long_s() == SHORTEST_LONG_S


def test_a_handler_that_becomes_slow_is_known_as_that_at_once_and_forgotten_over_some_batches() -> None:
    usual = UsualTime()
    usual.learn([10_000] * 100)
    assert usual.long_s([64 * SECOND]) == pytest.approx(192.0)
    for _ in range(20):
        usual.learn([64 * SECOND])
    assert usual.long_s([10_000]) == pytest.approx(192.0, rel=0.01)
    for _ in range(30):
        usual.learn([10_000])
    assert usual.long_s() == SHORTEST_LONG_S
