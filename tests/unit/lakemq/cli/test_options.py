"""Times, places and pairs as people type them."""

from __future__ import annotations

import argparse

import pytest

from lakemq.cli import options

NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21", NOW),
        ("2026-11-21T00:00", NOW),
        ("2026-11-21T00:00:00.250Z", NOW + 250),
        ("2026-11-21T01:00:00+01:00", NOW),
        ("1795219200000", NOW),
        ("10m", NOW - 600_000),
        ("2h", NOW - 7_200_000),
        ("1d", NOW - 86_400_000),
        ("1.5 m", NOW - 90_000),
    ],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert options.parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "10", "-5m", "40000d", ""])
def test_what_is_no_time_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as"):
        options.parse_time(text, NOW)


def test_place_is_an_end_or_a_time() -> None:
    assert options.place("earliest") == "earliest"
    assert options.place("1795219200000") == NOW


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_counts_start_at_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.positive(text)


def test_pair_splits_at_the_first_sign() -> None:
    assert options.pair("a=b=c") == ("a", "b=c")
    with pytest.raises(argparse.ArgumentTypeError):
        options.pair("=b")
