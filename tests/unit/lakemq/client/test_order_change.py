"""Which share of sharding keys a change of an ordered topic's list moves, and what is no list."""

from __future__ import annotations

from typing import Any

import pytest

from lakemq.client.order_change import moved_share, order_topic
from store_native.errors import InvalidRequest


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ({"a": 4, "b": 4}, {"b": 4, "a": 4}, 0.0),
        ({"a": 4}, {"b": 4}, 1.0),
        ({"a": 2}, {"a": 2, "b": 2}, 0.5),
        ({"a": 4, "b": 4}, {"a": 4, "b": 4, "c": 4}, 2 / 3),
        ({"a": 4}, {"a": 8}, 0.5),
    ],
)
def test_the_share_is_that_of_keys_which_go_to_another_queue(
    before: dict[str, int], after: dict[str, int], share: float
) -> None:
    assert moved_share(before, after) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("brokers", ["broker-a", b"broker-a", 17, [17], {17: 4}])
def test_what_is_no_list_of_names_is_refused_before_anybody_is_asked(brokers: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"ARGUMENT_ILLEGAL: brokers: is .*, not a list of names"):
        order_topic("t", brokers, known={}, routes=None, queues=None, dry_run=False, settings={})
