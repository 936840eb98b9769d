"""A new epoch is higher than all that were heard of, and no other broker's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ha_replicator.identity import MAX_EPOCH_STEP, next_epoch

SEEN = st.integers(1, 1 << 40)
BROKER_IDS = st.integers(0, 63)


@given(SEEN, BROKER_IDS)
def test_new_epoch_is_higher_and_within_reach(seen: int, broker_id: int) -> None:
    assert seen < next_epoch(seen, broker_id) <= seen + MAX_EPOCH_STEP


@given(SEEN, SEEN, BROKER_IDS, BROKER_IDS)
def test_two_brokers_never_begin_one_epoch(seen: int, other_seen: int, one: int, other: int) -> None:
    if one != other:
        assert next_epoch(seen, one) != next_epoch(other_seen, other)
