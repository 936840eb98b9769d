"""Delays of retries against the store's delay levels."""

from __future__ import annotations

import pytest

from jobs.redelivery.retry_policy import DEFAULT_MAX_RECONSUME_TIMES, RetryPolicy
from store_native.errors import InvalidRequest

LEVELS = [1_000, 5_000, 10_000, 30_000, 60_000]


def test_delays_become_the_levels_of_the_store() -> None:
    assert RetryPolicy.of("10s 1m 1s", LEVELS, 16) == RetryPolicy(16, (3, 5, 1), tuple(LEVELS))


def test_the_last_delay_repeats() -> None:
    policy = RetryPolicy.of("1s 5s", LEVELS, 16)
    assert [policy.level_of_attempt(attempt) for attempt in (1, 2, 3, 9)] == [1, 2, 2, 2]


def test_without_delays_retries_wait_as_in_rocketmq_from_level_3() -> None:
    assert RetryPolicy.of(None, LEVELS, 16) == RetryPolicy(16, (3, 4, 5), tuple(LEVELS))
    assert RetryPolicy.of(None, [500], 16).delay_levels == (1,)


def test_the_shortest_delay_each_time_unless_others_are_given() -> None:
    assert RetryPolicy.of(None, [5_000, 1_000, 9_000], 16, shortest=True).delay_levels == (2,)
    assert RetryPolicy.of("9s", [5_000, 1_000, 9_000], 16, shortest=True).delay_levels == (3,)


@pytest.mark.parametrize("delays", ["11s", "10", "soon", " "])
def test_a_delay_the_store_has_no_level_for_is_refused_with_the_known_ones(delays: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        RetryPolicy.of(delays, LEVELS, 16)
    assert refused.value.code == "ARGUMENT_ILLEGAL"


def test_the_refusal_names_the_levels() -> None:
    with pytest.raises(InvalidRequest, match=r"11s .*1s 5s 10s 30s 1m"):
        RetryPolicy.of("11s", LEVELS, 16)


def test_a_delay_between_levels_waits_for_the_longer_one() -> None:
    policy = RetryPolicy.of(None, LEVELS, 16)
    assert [policy.level_of_delay(ms) for ms in (0, 1_000, 1_001, 10_000, 99_000)] == [1, 1, 2, 3, 5]


def test_a_broker_without_levels_cannot_retry() -> None:
    with pytest.raises(InvalidRequest) as refused:
        RetryPolicy.of(None, [], 16)
    assert refused.value.code == "ARGUMENT_ILLEGAL"


def test_no_retries_are_allowed_and_fewer_than_none_refused() -> None:
    assert RetryPolicy.of(None, LEVELS, 0).max_reconsume_times == 0
    for wrong in (-1, -2):
        with pytest.raises(InvalidRequest, match="--max-reconsume-times") as refused:
            RetryPolicy.of(None, LEVELS, wrong)
        assert refused.value.code == "ARGUMENT_ILLEGAL"


def test_a_level_outside_the_stores_is_the_nearest_one() -> None:
    policy = RetryPolicy.of(None, LEVELS, 16)
    assert [policy.clamp(level) for level in (-7, 0, 1, 5, 6, 99)] == [1, 1, 1, 5, 5, 5]


def test_levels_of_a_store_need_not_ascend() -> None:
    policy = RetryPolicy.of(None, [60_000, 1_000, 10_000, 5_000], 16)
    assert [policy.level_of_delay(ms) for ms in (0, 1_001, 5_001, 10_001, 99_000)] == [2, 4, 3, 1, 1]


def test_a_delay_between_the_levels_is_none_of_them() -> None:
    with pytest.raises(InvalidRequest, match="20s is not a delay level"):
        RetryPolicy.of("20s", LEVELS, 16)


def test_rocketmqs_own_number_of_retries_is_16() -> None:
    assert DEFAULT_MAX_RECONSUME_TIMES == 16


def test_delays_may_stand_between_commas() -> None:
    assert RetryPolicy.of("1s,10s, 1m", LEVELS, 16) == RetryPolicy.of("1s 10s 1m", LEVELS, 16)


def test_a_backoff_draws_below_a_bound_that_doubles_and_waits_for_a_level() -> None:
    highest = RetryPolicy.of(None, LEVELS, 16, "1s..1m", lambda: 1.0)
    assert [highest.level_of_attempt(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 99)] == [1, 2, 2, 3, 4, 5, 5, 5, 5]
    middle = RetryPolicy.of(None, LEVELS, 16, "1s..1m", lambda: 0.5)
    assert [middle.level_of_attempt(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 99)] == [1, 1, 2, 2, 3, 4, 4, 4, 4]
    assert RetryPolicy.of(None, LEVELS, 16, "1s..1m", lambda: 0.0).level_of_attempt(9) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1s", "not a range"),
        ("1s-1m", "not a range"),
        ("1m..1s", "the shorter one first"),
        ("0s..1m", "no delays"),
        ("..1m", "not a duration"),
        ("1s..45s", "45s is not a delay level of this store .1s 5s 10s 30s 1m"),
    ],
)
def test_a_backoff_that_cannot_be_kept_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"--retry-backoff: .*{why}") as refused:
        RetryPolicy.of(None, LEVELS, 16, text)
    assert refused.value.code == "ARGUMENT_ILLEGAL"


def test_a_list_and_a_backoff_are_not_taken_together() -> None:
    with pytest.raises(InvalidRequest, match="give one of the two") as refused:
        RetryPolicy.of("1s", LEVELS, 16, "1s..1m")
    assert refused.value.code == "ARGUMENT_ILLEGAL"
