"""A sharding key's broker."""

from __future__ import annotations

from collections import Counter

from store_native.sharding import in_order, of_sharding_key


def test_a_sharding_key_has_one_broker_and_all_brokers_have_keys() -> None:
    order = in_order({"a": 2, "b": 2})
    assert order == ["a", "b", "a", "b"]
    chosen = [of_sharding_key(f"customer-{number}", order) for number in range(100)]
    assert chosen == [of_sharding_key(f"customer-{number}", order) for number in range(100)]
    assert min(Counter(chosen).values()) > 20
