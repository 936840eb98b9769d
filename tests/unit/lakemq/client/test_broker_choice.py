"""Which broker gets the next send: in turn, around who failed or was slow, and by sharding key."""

from __future__ import annotations

from collections import Counter

import pytest

from lakemq.client.broker_choice import (
    FAILED_S,
    LATENCY_MS,
    NOT_AVAILABLE_MS,
    BrokerChoice,
    avoided_ms,
    in_order_of_key,
)
from store_native.errors import Unavailable


def test_brokers_take_turns_in_proportion_to_their_writable_queues() -> None:
    choice = BrokerChoice()
    chosen = [choice.choose({"a": 4, "b": 4, "c": 8}) for _ in range(160)]
    assert Counter(chosen) == {"a": 40, "b": 40, "c": 80}
    alternating = [choice.choose({"a": 1, "b": 1}) for _ in range(4)]
    assert alternating[:2] == alternating[2:]
    assert set(alternating) == {"a", "b"}


def test_a_broker_that_failed_is_avoided_for_a_while_or_until_a_send_to_it_went_well() -> None:
    now = [0.0]
    choice = BrokerChoice(clock=lambda: now[0])
    choice.failed("a")
    now[0] = FAILED_S
    assert {choice.choose({"a": 4, "b": 4}) for _ in range(20)} == {"a", "b"}, "it may be back"
    choice.failed("a")
    assert {choice.choose({"a": 4, "b": 4}) for _ in range(20)} == {"b"}
    assert choice.choose({"a": 4}) == "a", "where there is no other it is taken"
    choice.went_well("a", 0.01)
    assert {choice.choose({"a": 4, "b": 4}) for _ in range(20)} == {"a", "b"}


def test_a_send_that_failed_goes_where_it_was_not_yet() -> None:
    choice = BrokerChoice()
    choice.failed("b")
    assert {choice.choose({"a": 1, "b": 1, "c": 1}, {"a", "b"}) for _ in range(9)} == {"c"}
    assert {choice.choose({"a": 1, "b": 1}, {"a"}) for _ in range(9)} == {"b"}, "rather than where it was"


@pytest.mark.parametrize(("latency_ms", "avoided"), list(zip(LATENCY_MS, NOT_AVAILABLE_MS, strict=True)))
def test_a_slow_broker_is_avoided_for_as_long_as_the_table_says(latency_ms: int, avoided: int) -> None:
    assert avoided_ms(latency_ms) == avoided
    now = [0.0]
    choice = BrokerChoice(avoid_slow=True, clock=lambda: now[0])
    choice.went_well("a", latency_ms / 1000)
    both = {"a": 1, "b": 1}
    if avoided:
        now[0] = avoided / 1000 - 0.001
        assert {choice.choose(both) for _ in range(9)} == {"b"}
    now[0] = avoided / 1000
    assert {choice.choose(both) for _ in range(9)} == {"a", "b"}


def test_an_idempotency_key_has_one_order_of_brokers_that_others_do_not_change() -> None:
    keys = [f"key-{number}" for number in range(300)]
    first = {key: in_order_of_key(key, ["c", "a", "b"])[0] for key in keys}
    assert first == {key: in_order_of_key(key, {"a": 1, "b": 2, "c": 3})[0] for key in keys}
    assert min(Counter(first.values()).values()) > 60
    joined = {key: in_order_of_key(key, "abcd") for key in keys}
    assert all(next(name for name in joined[key] if name != "d") == first[key] for key in keys)


def test_the_table_of_latencies_is_rocketmq_5s() -> None:
    latencies_ms = (49, 50, 100, 550, 1_800, 3_000, 5_000, 15_000)
    assert [avoided_ms(ms) // 1000 for ms in latencies_ms] == [0, 0, 0, 2, 5, 6, 10, 30]


def test_without_a_writable_queue_there_is_no_choice() -> None:
    with pytest.raises(Unavailable, match="no broker"):
        BrokerChoice().choose({"a": 0})
