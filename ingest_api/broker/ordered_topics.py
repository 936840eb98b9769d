"""What a change may do to a topic that is ordered, or becomes it.

Owns the rules. Pure.

Invariants: a list of brokers goes only with a list of a higher version, and there is a higher one always; a
broker has as many write queues as its topic's list says, so that no sharding key moves to another queue in
silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakemq.duration import MAX_MS
from store_native.errors import InvalidRequest
from store_native.order_conf import ATTRIBUTES, OrderConf

MOST_AHEAD_MS = MAX_MS
"""So far a version may be ahead of the clock, 100 years: a broker's clock that is wrong refuses no list."""


def checked_change(
    topic: str,
    broker_name: str,
    known: Mapping[str, Any] | None,
    change: Mapping[str, Any],
    order_conf: OrderConf | None,
    now_ms: int,
) -> dict[str, Any]:
    """Returns a change with what the topic's list of brokers makes of it.

    Args:
        topic: The topic.
        broker_name: Of the broker that is asked.
        known: The topic's configuration; None where it is to be made.
        change: What is to be set by name, None for what stays.
        order_conf: The list that is to be set; None where the one that is there stays.
        now_ms: Epoch milliseconds.

    Raises:
        InvalidRequest: TOPIC_CONFLICT, the topic has a newer list, or the number of queues is not the list's;
            ARGUMENT_ILLEGAL, the attributes name what only the list says, or its version leaves no room.
    """
    had = {} if known is None else dict(known["attributes"])
    before = OrderConf.of_attributes(had)
    _check_attributes(change["attributes"], before)
    if order_conf is not None and order_conf != before:
        _check_room(order_conf, now_ms)
        if before is not None:
            _check_newer(topic, before, order_conf)
    conf = order_conf or before
    if conf is None:
        return dict(change)
    changed = dict(change)
    if order_conf is not None or change["attributes"] is not None:
        given = had if change["attributes"] is None else change["attributes"]
        others = {name: value for name, value in given.items() if name not in ATTRIBUTES}
        changed["attributes"] = {**others, **conf.attributes()}
    nums = conf.write_queue_nums.get(broker_name)
    if nums is None:
        return changed
    if change["write_queue_nums"] not in (None, nums):
        raise InvalidRequest(
            "TOPIC_CONFLICT",
            f"topic[{topic}] is ordered, and its list gives broker {broker_name} {nums} write queues, not "
            f"{change['write_queue_nums']}: another number moves sharding keys; change the list "
            f"(lakemq topic order {topic})",
            topic=topic,
        )
    changed["write_queue_nums"] = nums
    if change["read_queue_nums"] is None:
        read = 0 if known is None else int(known["read_queue_nums"])
        changed["read_queue_nums"] = max(read, nums)
    return changed


def check_nothing_between(
    topic: str, known: Mapping[str, Any] | None, order_conf: OrderConf, newest_known: int
) -> None:
    """Refuses a list from somebody who has not heard of the one that is there.

    Args:
        topic: The topic.
        known: Its configuration; None where it is to be made.
        order_conf: The list that is to be set.
        newest_known: The version of the newest list that its sender had heard of; 0: of none.

    Raises:
        InvalidRequest: TOPIC_CONFLICT.
    """
    has = None if known is None else OrderConf.of_attributes(known["attributes"])
    if has is not None and has != order_conf and has.version > newest_known:
        went_by = f"version {newest_known}" if newest_known else "a topic without one"
        raise InvalidRequest(
            "TOPIC_CONFLICT",
            f"topic[{topic}] has the list {has}, and {order_conf} is a change of {went_by}: "
            "another change came between",
            topic=topic,
            order_conf={"version": has.version, "brokers": has.brokers},
        )


def _check_attributes(given: Mapping[str, str] | None, before: OrderConf | None) -> None:
    named = {name: value for name, value in (given or {}).items() if name in ATTRIBUTES}
    # Who read them and writes them back changes nothing.
    if named and (before is None or named != before.attributes()):
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"the attributes {', '.join(sorted(ATTRIBUTES))} are what order_conf says: set that",
            pointer="/attributes",
        )


def _check_newer(topic: str, before: OrderConf, given: OrderConf) -> None:
    if given.version <= before.version:
        raise InvalidRequest(
            "TOPIC_CONFLICT",
            f"topic[{topic}] has the list {before}, and {given} is not newer",
            topic=topic,
            order_conf={"version": before.version, "brokers": before.brokers},
        )


def _check_room(given: OrderConf, now_ms: int) -> None:
    """Refuses a version above which there may be none some day; the clock's own goes on."""
    if given.version > now_ms + MOST_AHEAD_MS:
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"the version {given.version} leaves no room for newer lists: the highest is 100 years "
            f"({MOST_AHEAD_MS:,}) above this broker's clock in epoch ms, {now_ms + MOST_AHEAD_MS} now",
            pointer="/order_conf/version",
        )
