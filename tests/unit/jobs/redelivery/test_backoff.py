"""Delays that grow and are drawn."""

from __future__ import annotations

import pickle
from statistics import fmean

import pytest

from jobs.redelivery.backoff import Backoff


def all_of_it() -> float:
    """The most that a generator comes near to."""
    return 1.0


def test_the_bound_doubles_up_to_the_longest() -> None:
    backoff = Backoff.parse("500ms..10s", all_of_it)
    assert [backoff.delay_ms(n) for n in range(1, 8)] == [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]
    assert backoff.delay_ms(2**31 - 1) == 10_000


def test_delays_are_spread_over_all_of_the_bound() -> None:
    delays = [Backoff.parse("8s..8s").delay_ms(1) for _ in range(4_000)]
    assert 0 <= min(delays) < 400
    assert 7_600 < max(delays) <= 8_000
    assert fmean(delays) == pytest.approx(4_000, rel=0.1)


def test_a_copy_that_travelled_draws_other_numbers() -> None:
    backoff = Backoff.parse("1h..1h")
    copies = [pickle.loads(pickle.dumps(backoff)) for _ in range(2)]
    assert copies[0] == copies[1]
    first, second = ([copy.delay_ms(1) for _ in range(8)] for copy in copies)
    assert first != second
