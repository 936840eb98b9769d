"""Waits of tests leave the processor to what they wait for."""

from __future__ import annotations

import pytest

from tests.support.waiting import pause_s


@pytest.mark.parametrize(("look_s", "wanted_s"), [(0.0, 0.02), (0.004, 0.02), (0.05, 0.2), (30.0, 0.5)])
def test_a_look_that_takes_long_is_followed_by_a_longer_pause(look_s: float, wanted_s: float) -> None:
    assert pause_s(look_s) == pytest.approx(wanted_s)
