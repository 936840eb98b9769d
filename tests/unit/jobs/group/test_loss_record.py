"""A group goes on behind what is lost only where positions still mean the same messages."""

from __future__ import annotations

import pytest

from delta_tables.data_losses import LostRange, without
from jobs.group.loss_record import refuse_other_losses
from store_native.errors import InvalidRequest
from structured_streaming.offsets import Bounds, MessageQueue, Offsets, TopicMetadata, advance
from structured_streaming.source.data_loss import reconcile

Q = MessageQueue("orders", "broker-a", 0)
BEGIN = Offsets(2, {"orders": "a"}, {Q: 5})


@pytest.mark.parametrize("end", [Offsets(2, {"orders": "a"}, {Q: 9}), Offsets(3, {"orders": ""}, {Q: 5})])
def test_positions_that_moved_on_are_good(end: Offsets) -> None:
    refuse_other_losses(BEGIN, end, "g")


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Offsets(2, {"orders": "b"}, {Q: 9}), "created again"),
        (Offsets(2, {"orders": "a"}, {Q: 3}), "put back"),
        (Offsets(1, {"orders": "a"}, {Q: 9}), "put back"),
    ],
)
def test_positions_that_would_be_given_twice_are_refused(end: Offsets, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        refuse_other_losses(BEGIN, end, "g")


def test_a_topic_that_is_gone_is_refused_before_it_can_come_back_unseen() -> None:
    other = MessageQueue("other", "broker-a", 0)
    begin = Offsets(2, {"orders": "a", "other": "o"}, {Q: 5, other: 5})
    metadata = TopicMetadata(2, {"other": "o"}, {other: Bounds(0, 6)})
    found = reconcile(begin, metadata, lambda queue: True)
    end = advance(begin, metadata, {other: 6}, found.gone)
    with pytest.raises(InvalidRequest, match=r"topic orders, broker broker-a, queue 0.*no longer"):
        refuse_other_losses(begin, end, "g")


def test_a_queue_that_is_gone_is_refused_and_a_topic_no_longer_subscribed_is_not() -> None:
    more = MessageQueue("orders", "broker-a", 1)
    begin = Offsets(2, {"orders": "a"}, {Q: 5, more: 0})
    with pytest.raises(InvalidRequest, match=r"queue 1.*no longer"):
        refuse_other_losses(begin, Offsets(2, {"orders": "a"}, {Q: 5}), "g")
    metadata = TopicMetadata(2, {"new": "n"}, {MessageQueue("new", "broker-a", 0): Bounds(0, 3)})
    found = reconcile(begin, metadata, lambda queue: queue.topic == "new")
    refuse_other_losses(
        begin, advance(begin, metadata, {MessageQueue("new", "broker-a", 0): 3}, found.gone), "g"
    )


def test_a_position_that_has_a_delivery_is_never_lost() -> None:
    lost = [LostRange("t", "b", 0, 3, 9, "expired"), LostRange("t", "b", 1, 0, 2, "damaged")]
    delivered = [("t", "b", 0, offset) for offset in (8, 2, 5, 5, 3, 9)] + [
        ("t", "b", 1, 0),
        ("t", "b", 1, 1),
    ]
    assert without(lost, delivered) == [
        LostRange("t", "b", 0, 4, 5, "expired"),
        LostRange("t", "b", 0, 6, 8, "expired"),
    ]
    assert without(lost, [("other", "b", 0, 4)]) == lost


def test_a_retry_topic_that_is_gone_is_no_longer_read_and_any_other_is_refused() -> None:
    """Nobody can leave it out, and made again it gives no position of the ledger twice."""
    again = MessageQueue("%RETRY%g", "broker-a", 0)
    refuse_other_losses(Offsets(1, {"%RETRY%g": "a"}, {again: 5}), Offsets(1), "g")
    with pytest.raises(InvalidRequest, match="no longer exists"):  # another group's is a topic like any
        refuse_other_losses(Offsets(1, {"%RETRY%g": "a"}, {again: 5}), Offsets(1), "another")
    with pytest.raises(InvalidRequest, match="no longer exists"):
        refuse_other_losses(Offsets(1, {"t": "a"}, {MessageQueue("t", "broker-a", 0): 5}), Offsets(1), "g")


def test_a_retry_topic_that_was_made_again_is_begun_anew() -> None:
    """So it is after an unclean promotion of a slave that lacked it."""
    queue = MessageQueue("%RETRY%g", "broker-a", 0)
    begin = Offsets(1, {"%RETRY%g": "a"}, {queue: 5})
    refuse_other_losses(begin, Offsets(65, {"%RETRY%g": "b"}, {queue: 2}), "g")
    with pytest.raises(InvalidRequest, match="put back"):
        refuse_other_losses(begin, Offsets(65, {"%RETRY%g": "a"}, {queue: 2}), "g")
