"""What a change may do to an ordered topic: which lists a broker takes."""

from __future__ import annotations

from typing import Any

import pytest

from ingest_api.broker.ordered_topics import MOST_AHEAD_MS, checked_change
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf

NOW_MS = 1_795_000_000_000
NOTHING_ELSE: dict[str, Any] = dict.fromkeys(("read_queue_nums", "write_queue_nums", "perm", "attributes"))


def taken(version: int, before: OrderConf | None = None, *, now_ms: int = NOW_MS) -> OrderConf | None:
    known = None if before is None else {"attributes": before.attributes(), "read_queue_nums": 4}
    conf = OrderConf.parse(version, "broker-a:4")
    change = checked_change("t", "broker-a", known, NOTHING_ELSE, conf, now_ms)
    return OrderConf.of_attributes(change["attributes"])


@pytest.mark.parametrize("version", [NOW_MS + MOST_AHEAD_MS + 1, (1 << 62), (1 << 63) - 1])
def test_a_version_that_leaves_no_room_is_refused(version: int) -> None:
    for before in (None, OrderConf(7, "broker-a:2")):
        with pytest.raises(InvalidRequest, match=r"ARGUMENT_ILLEGAL: .*leaves no room for newer lists"):
            taken(version, before)


def test_behind_the_highest_version_there_is_a_higher_one_a_moment_later() -> None:
    highest = taken(NOW_MS + MOST_AHEAD_MS)
    assert highest is not None
    after = taken(highest.version + 1, highest, now_ms=NOW_MS + 1)
    assert after is not None
    assert after.version == highest.version + 1


def test_the_list_that_is_there_may_be_given_again_whatever_the_clock_says() -> None:
    before = OrderConf(NOW_MS, "broker-a:4")
    assert taken(NOW_MS, before, now_ms=-MOST_AHEAD_MS) == before


def test_a_broker_whose_clock_begins_at_nothing_takes_a_list_of_today() -> None:
    assert taken(NOW_MS, now_ms=0) is not None
