"""What takes long is what takes longer than calls of that handler do, and nothing is before one has ended."""

from __future__ import annotations

import math

import pytest

from jobs.handler.usual_time import SHORTEST_LONG_S, UsualTime


def test_nothing_takes_long_before_a_call_has_ended() -> None:
    assert UsualTime().long_s == math.inf


@pytest.mark.parametrize(
    ("took_s", "long_s"), [(0.0, SHORTEST_LONG_S), (0.01, SHORTEST_LONG_S), (20.0, 60.0)]
)
def test_three_times_as_long_as_usual_is_long_and_a_second_at_least(took_s: float, long_s: float) -> None:
    usual = UsualTime()
    for _ in range(3):
        usual.add(took_s)
    assert usual.long_s == pytest.approx(long_s)


def test_the_last_calls_say_most() -> None:
    usual = UsualTime()
    for took_s in (0.01,) * 1_000:
        usual.add(took_s)
    usual.add(64.0)
    assert usual.long_s == pytest.approx(3.0, rel=0.02), "one of some hundred seconds makes no usual"
    for took_s in (64.0,) * 300:
        usual.add(took_s)
    assert usual.long_s > 180.0
    for took_s in (0.01,) * 600:
        usual.add(took_s)
    assert usual.long_s == SHORTEST_LONG_S
