"""One grammar of durations, and every place that takes them."""

from __future__ import annotations

import argparse
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.setting_sources import load_settings
from jobs.arguments import add_archive_arguments, archive_settings
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.argument_types import duration_ms
from lakemq.cli.options import parse_time
from lakemq.duration import MAX_MS, format_ms, parse_ms
from lakemq.handler import Verdict
from store_native.errors import InvalidRequest

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WHOLE = st.tuples(st.integers(0, 36_500), st.sampled_from(sorted(UNITS)))


@given(st.integers(0, MAX_MS))
def test_what_is_written_is_read_as_the_same_duration(duration_ms: int) -> None:
    assert parse_ms(format_ms(duration_ms)) == duration_ms


@given(WHOLE, st.sampled_from(["", " ", "  "]))
def test_a_number_counts_its_unit(written: tuple[int, str], space: str) -> None:
    number, unit = written
    assert parse_ms(f"{space}{number}{space}{unit}{space}") == number * UNITS[unit]


@given(st.decimals(0, 36_500, places=3), st.sampled_from(sorted(UNITS)))
def test_decimals_are_exact_to_the_millisecond(number: Decimal, unit: str) -> None:
    assert abs(parse_ms(f"{number}{unit}") - number * UNITS[unit]) <= Decimal("0.5")


@given(st.integers(0, 36_500), st.sampled_from(sorted(UNITS)))
def test_a_number_without_a_unit_is_what_the_caller_says(number: int, bare: str) -> None:
    assert parse_ms(str(number), bare=bare) == number * UNITS[bare]
    with pytest.raises(ValueError, match="is not a duration: write 500ms, 10s"):
        parse_ms(str(number))


@given(st.text())
def test_any_text_is_a_duration_within_bounds_or_is_refused(text: str) -> None:
    try:
        assert 0 <= parse_ms(text, bare="s") <= MAX_MS
    except ValueError as error:
        assert "duration" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    "text", ["", "s", "-5m", "+5m", "1e3s", "1.s", ".5s", "10S", "5 minutes", "1h30m", "٣s"]
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write 500ms, 10s, 2m, 1h or 7d"):
        parse_ms(text, bare="s")


@pytest.mark.parametrize("text", ["36501d", "9" * 18 + "d", "876000.1h"])
def test_more_than_a_hundred_years_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than 36500d"):
        parse_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"), [(500, "500ms"), (60_000, "1m"), (61_000, "61s"), (86_400_000, "1d")]
)
def test_a_duration_is_written_in_its_longest_whole_unit(ms: int, text: str) -> None:
    assert format_ms(ms) == text


@given(WHOLE.filter(lambda written: written[0] > 0))
def test_all_who_take_durations_read_the_same(written: tuple[int, str]) -> None:
    text, ms = f"{written[0]}{written[1]}", written[0] * UNITS[written[1]]
    assert Verdict.retry(text).delay_ms == ms
    assert duration_ms(text) == ms
    assert parse_time(text, 0) == -ms
    assert RetryPolicy.of(text, [ms], 1).delay_levels == (1,)


def test_a_trigger_without_a_unit_is_seconds() -> None:
    parser = argparse.ArgumentParser()
    add_archive_arguments(parser)
    settings = archive_settings(parser.parse_args(["--topic", "t", "--trigger", "2.5"]))
    assert settings.trigger == "2500 milliseconds"


def test_an_argument_that_is_no_duration_says_what_one_is() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'soon' is not a duration: write 500ms"):
        duration_ms("soon")


@pytest.mark.parametrize(
    ("written", "stored"), [("1s 90s 1.5m 24h", "1s 90s 90s 1d"), ("1000ms", "1s"), ("60s 365d", "1m 365d")]
)
def test_delay_levels_reach_the_store_in_its_own_form(written: str, stored: str) -> None:
    assert load_settings(None, {"store.delay_levels": written}).store.delay_levels == stored


@pytest.mark.parametrize("levels", ["1500ms", "0s", "10", "366d", "1 s"])
def test_a_delay_level_is_whole_seconds_up_to_a_year(levels: str) -> None:
    with pytest.raises(InvalidRequest, match=r"store\.delay_levels: "):
        load_settings(None, {"store.delay_levels": levels})
