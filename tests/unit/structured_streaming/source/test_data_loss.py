"""What a query can no longer read is said, with topic, queue and range."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given

from store_native.errors import InvalidRequest
from structured_streaming.offsets import Bounds, EpochOffset, MessageQueue, Offsets, TopicMetadata
from structured_streaming.source.data_loss import (
    Loss,
    cut_off,
    damaged,
    past_common,
    reconcile,
    report,
    say_unknown_epoch,
    truncated_before,
    truncated_plan,
)
from tests.unit.structured_streaming.strategies import metadata_values, offsets

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def everything(_: MessageQueue) -> bool:
    return True


def metadata(bounds: dict[MessageQueue, Bounds], topic_id: str = "a1", epoch: int = 1) -> TopicMetadata:
    return TopicMetadata(epoch, {queue.topic: topic_id for queue in bounds}, bounds)


def start(positions: dict[MessageQueue, int], epoch: int = 1) -> Offsets:
    return Offsets(epoch, {queue.topic: "a1" for queue in positions}, positions)


def test_nothing_is_lost_while_positions_are_within_bounds() -> None:
    sound = reconcile(start({Q0: 5}), metadata({Q0: Bounds(5, 9), Q1: Bounds(0, 3)}), everything)
    assert (sound.starts, sound.losses) == ({Q0: 5, Q1: 0}, [])


def test_an_expired_range_is_named_and_skipped() -> None:
    sound = reconcile(start({Q0: 5}), metadata({Q0: Bounds(8, 9)}), everything)
    assert sound.starts == {Q0: 8}
    assert [loss.messages for loss in sound.losses] == [3]
    with pytest.raises(
        InvalidRequest, match=r"topic orders, broker broker-a, queue 0: offsets \[5, 8\) expired"
    ):
        report(sound.losses, fail=True)


def test_a_new_queue_that_lost_its_head_is_a_loss_too() -> None:
    sound = reconcile(start({Q0: 5}), metadata({Q0: Bounds(0, 9), Q1: Bounds(4, 6)}), everything)
    assert sound.starts[Q1] == 4
    assert [loss.messages for loss in sound.losses] == [4]


def test_a_topic_made_again_restarts_at_its_beginning_and_is_said_once() -> None:
    held = metadata({Q0: Bounds(0, 2), Q1: Bounds(1, 9)}, topic_id="zz")
    sound = reconcile(start({Q0: 500, Q1: 3}), held, everything)
    assert sound.starts == {Q0: 0, Q1: 1}
    assert ["created again" in loss.what for loss in sound.losses] == [True]


def test_a_store_put_back_restarts_all_topics() -> None:
    sound = reconcile(start({Q0: 5}, epoch=4), metadata({Q0: Bounds(0, 9)}, epoch=3), everything)
    assert sound.starts == {Q0: 0}
    assert ["epoch 3" in loss.what for loss in sound.losses] == [True]


def test_a_failover_to_a_higher_epoch_keeps_positions() -> None:
    sound = reconcile(start({Q0: 5}, epoch=4), metadata({Q0: Bounds(0, 9)}, epoch=5), everything)
    assert (sound.starts, sound.losses) == ({Q0: 5}, [])


def held_since(*epochs: tuple[int, int] | tuple[int, int, bool], low: int = 0, high: int = 9) -> Bounds:
    return Bounds(low, high, tuple(EpochOffset(*at) for at in epochs))


def test_a_position_past_the_common_point_is_said_with_its_range_and_goes_on_there() -> None:
    held = metadata({Q0: held_since((1, 0), (65, 2)), Q1: held_since((1, 0), (65, 3))}, epoch=65)
    sound = reconcile(start({Q0: 5, Q1: 3}), held, everything)
    assert sound.starts == {Q0: 2, Q1: 3}
    (loss,) = sound.losses
    assert (loss.queue, loss.start, loss.end, loss.messages) == (Q0, 2, 5, None)
    assert loss.what.startswith(f"{Q0}: truncated log: offsets [2, 5) were other messages in epoch 1")
    assert loss.epochs == (1, 65)
    assert not loss.is_range, "a group's ledger has these offsets"
    with pytest.raises(InvalidRequest, match=r"truncated log: offsets \[2, 5\).*--on-data-loss record"):
        report(sound.losses, fail=True)


def test_a_truncated_log_that_is_short_yet_is_said_with_the_same_range() -> None:
    held = metadata({Q0: held_since((1, 0), (65, 2), high=3)}, epoch=65)
    sound = reconcile(start({Q0: 5}), held, everything)
    assert sound.starts == {Q0: 2}
    assert ["truncated log: offsets [2, 5)" in loss.what for loss in sound.losses] == [True]


def test_the_common_point_is_that_of_the_oldest_epoch_behind_the_positions() -> None:
    epochs = ((1, 0), (65, 2), (130, 4), (200, 8))
    for epoch, common in ((1, 2), (64, 2), (65, 4), (66, 4), (130, 8), (199, 8)):
        held = metadata({Q0: held_since(*epochs)}, epoch=200)
        assert reconcile(start({Q0: 9}, epoch), held, everything).starts == {Q0: common}, epoch
    noted = reconcile(start({Q0: 9}, 200), metadata({Q0: held_since(*epochs)}, epoch=200), everything)
    assert (noted.starts, noted.losses) == ({Q0: 9}, []), "what was noted is not said again"


def test_a_common_point_before_the_oldest_message_is_told_with_what_has_expired_behind_it() -> None:
    held = metadata({Q0: held_since((1, 0), (65, 2), low=4)}, epoch=65)
    sound = reconcile(start({Q0: 7}), held, everything)
    assert sound.starts == {Q0: 4}
    assert [(loss.start, loss.end, loss.messages) for loss in sound.losses] == [(2, 7, None), (2, 4, 2)]
    for at in (0, 2):
        sound = reconcile(start({Q0: at}), held, everything)
        assert [(loss.start, loss.end, loss.messages) for loss in sound.losses] == [(at, 4, 4 - at)]


def test_a_position_at_or_before_a_common_point_that_has_expired_is_never_passed_over() -> None:
    held = metadata({Q0: held_since((1, 0), (65, 4, True), (129, 6), low=4)}, epoch=129)
    for at in (1, 3, 4, 5):
        sound = reconcile(start({Q0: at}), held, everything)
        assert sound.starts == {Q0: 4}
        (loss,) = sound.losses
        assert (loss.reason, loss.is_range) == ("truncated log", False)
        said = f"{Q0}: truncated log: the query had come to {at} in epoch 1; the log as it is, of epoch 129, "
        assert loss.what.startswith(said + "is another one from offset 4 on, or from before"), loss.what
        assert loss.what.endswith("It goes on at offset 4")
    unread = reconcile(start({Q0: 0}), held, everything)
    assert [loss.reason for loss in unread.losses] == ["expired before they were read"]


def test_a_position_of_the_epoch_that_began_at_a_bound_is_told_nothing() -> None:
    held = metadata({Q0: held_since((1, 0), (65, 4, True), low=4)}, epoch=65)
    for at in (4, 5, 9):
        assert reconcile(start({Q0: at}, epoch=65), held, everything).losses == [], at
    sound = reconcile(start({Q0: 3}, epoch=65), held, everything)
    assert [(loss.start, loss.end, loss.messages) for loss in sound.losses] == [(3, 4, 1)]


def test_a_planned_batch_behind_a_common_point_that_has_expired_is_said() -> None:
    now = metadata({Q0: held_since((1, 0), (65, 4, True), low=4)}, epoch=65)
    for begin, end in ((1, 3), (3, 7)):
        (loss,) = truncated_plan(start({Q0: begin}), start({Q0: end}), now)
        assert f"the query had come to {end} in epoch 1" in loss.what
    assert truncated_plan(start({Q0: 3}, 65), start({Q0: 7}, 65), now) == []


def test_what_of_a_planned_batch_is_given_a_second_time_is_said() -> None:
    now = metadata({Q0: held_since((1, 0), (65, 4))}, epoch=65)
    planned = truncated_plan(start({Q0: 3}), start({Q0: 7}), now)
    assert [(loss.start, loss.end) for loss in planned] == [(4, 7)]
    assert truncated_plan(start({Q0: 3}), start({Q0: 4}), now) == []
    assert truncated_plan(start({Q0: 7}), start({Q0: 7}), now) == [], "nothing of it is read"
    follows = truncated_before(start({Q0: 7}), start({Q0: 6}, 65), now)
    assert [(loss.start, loss.end) for loss in follows] == [(4, 7)]
    assert truncated_before(start({Q0: 4}), start({Q0: 6}, 65), now) == []


def test_a_queue_shorter_than_the_position_goes_on_at_its_end() -> None:
    sound = reconcile(start({Q0: 50}), metadata({Q0: Bounds(0, 9)}), everything)
    assert sound.starts == {Q0: 9}
    (loss,) = sound.losses
    assert loss.what == f"{Q0}: the query is at 50 but the queue now ends at 9 (log truncated?)"


def test_deleted_topics_and_queues_are_losses_unless_not_subscribed() -> None:
    other = MessageQueue("gone", "broker-a", 0)
    before = Offsets(1, {"orders": "a1", "gone": "g"}, {Q0: 5, Q1: 5, other: 2})
    held = metadata({Q0: Bounds(0, 9)})
    sound = reconcile(before, held, everything)
    assert sound.gone == {Q1, other}
    assert len(sound.losses) == 2
    assert reconcile(before, held, lambda queue: queue == Q0).losses == []
    assert reconcile(before, held, lambda queue: queue == Q1).gone == {Q1}


def test_with_fail_on_data_loss_off_losses_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    sound = reconcile(start({Q0: 5, Q1: 0}), metadata({Q0: Bounds(8, 9), Q1: Bounds(4, 9)}), everything)
    with caplog.at_level(logging.WARNING, logger="lakemq.spark"):
        assert report(sound.losses, fail=False) == 7
    assert len(caplog.records) == 2


def test_a_long_list_of_losses_is_cut() -> None:
    many = {MessageQueue("orders", "b", i): Bounds(9, 9) for i in range(20)}
    sound = reconcile(start(dict.fromkeys(many, 1)), metadata(many), everything)
    with pytest.raises(InvalidRequest, match="and 15 more") as caught:
        report(sound.losses, fail=True)
    assert caught.value.context["lost"] == 160


@given(offsets(), metadata_values())
def test_reconciled_positions_can_always_be_read(before: Offsets, held: TopicMetadata) -> None:
    sound = reconcile(before, held, everything)
    assert sound.starts.keys() == held.bounds.keys()
    for queue, position in sound.starts.items():
        assert held.bounds[queue].min_offset <= position <= held.bounds[queue].max_offset
        if not sound.losses:
            assert position == before.position(queue)


def test_each_loss_has_its_own_words_and_no_other() -> None:
    gone = MessageQueue("gone", "broker-a", 0)
    before = Offsets(1, {"orders": "a1", "gone": "g"}, {Q0: 5, Q1: 5, gone: 2})
    said = [loss.what for loss in reconcile(before, metadata({Q0: Bounds(0, 9)}), everything).losses]
    assert said == [
        "topic gone no longer exists; what it still held is not known",
        "topic orders, broker broker-a, queue 1: the queue no longer exists; what it still held is not known",
    ]


def test_a_queue_missing_from_a_topic_made_again_is_part_of_that_loss() -> None:
    sound = reconcile(start({Q0: 5, Q1: 5}), metadata({Q0: Bounds(0, 9)}, topic_id="zz"), everything)
    assert ["created again" in loss.what for loss in sound.losses] == [True]
    assert sound.gone == {Q1}


def test_a_position_at_the_end_is_no_loss() -> None:
    sound = reconcile(start({Q0: 9}), metadata({Q0: Bounds(9, 9)}), everything)
    assert (sound.starts, sound.losses) == ({Q0: 9}, [])


def test_one_expired_message_is_a_loss() -> None:
    (loss,) = reconcile(start({Q0: 5}), metadata({Q0: Bounds(6, 9)}), everything).losses
    assert (loss.messages, loss.queue, loss.start, loss.end) == (1, Q0, 5, 6)
    assert loss.reason == "expired before they were read"


def test_a_damaged_range_is_counted_and_named() -> None:
    loss = damaged(Q0, 7, 9)
    assert (loss.messages, loss.queue, loss.start, loss.end) == (2, Q0, 7, 9)
    assert loss.what.endswith("queue 0: offsets [7, 9) are damaged in the store, 2 messages")


def test_a_loss_of_unknown_size_fails_too() -> None:
    with pytest.raises(InvalidRequest, match="ends at 9") as caught:
        report([cut_off(Q0, 50, 9)], fail=True)
    assert caught.value.context["lost"] == 0
    assert report([], fail=True) == 0


GO_ON = "(lakemq consume: --on-data-loss record; lakemq archive: --on-data-loss skip)"
GROUP_GOES_ON = (
    "(lakemq consume: --on-data-loss record); lakemq archive ends here whatever --on-data-loss says"
)
BOTH_END = "lakemq consume and lakemq archive end here whatever --on-data-loss says"


def advice(losses: list[Loss]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        report(losses, fail=True)
    return caught.value.detail


def test_a_group_and_an_archive_are_advised_to_pass_over_what_expired_or_is_damaged() -> None:
    sound = reconcile(start({Q0: 5}), metadata({Q0: Bounds(8, 9)}), everything)
    said = advice([*sound.losses, damaged(Q0, 8, 9)])
    assert said.endswith(f". Set failOnDataLoss=false to skip them and go on {GO_ON}")


def test_a_group_alone_is_where_its_retry_topic_is_gone() -> None:
    again = MessageQueue("%RETRY%g", "broker-a", 0)
    said = advice(reconcile(start({again: 5}), TopicMetadata(1, {}, {}), everything).losses)
    assert "topic %RETRY%g no longer exists" in said
    assert GROUP_GOES_ON in said


def test_so_it_is_where_its_retry_topic_was_made_again() -> None:
    again = MessageQueue("%RETRY%g", "broker-a", 0)
    sound = reconcile(start({again: 5}), metadata({again: Bounds(0, 2)}, topic_id="zz"), everything)
    said = advice(sound.losses)
    assert "topic %RETRY%g was deleted and created again" in said
    assert GROUP_GOES_ON in said


other_messages = pytest.mark.parametrize(
    ("before", "held"),
    [
        pytest.param(start({Q0: 5}), metadata({Q0: Bounds(0, 2)}, topic_id="zz"), id="topic made again"),
        pytest.param(start({Q0: 5}), metadata({Q1: Bounds(0, 2)}), id="queue gone"),
        pytest.param(start({Q0: 5}), TopicMetadata(1, {}, {}), id="topic gone"),
        pytest.param(start({Q0: 5}, epoch=4), metadata({Q0: Bounds(0, 9)}, epoch=3), id="older store"),
        pytest.param(start({Q0: 50}), metadata({Q0: Bounds(0, 9)}), id="shorter queue"),
    ],
)


@other_messages
def test_where_positions_may_mean_other_messages_a_query_that_keeps_them_ends_all_the_same(
    before: Offsets, held: TopicMetadata
) -> None:
    sound = reconcile(before, held, everything)
    with pytest.raises(InvalidRequest, match="failOnReusedOffsets; lakemq archive") as caught:
        report([damaged(Q0, 0, 1), *sound.losses], fail=False, fail_on_reused=True)
    assert "damaged" not in caught.value.detail
    assert report([damaged(Q0, 0, 1), *sound.losses], fail=False) == 1


def test_what_expired_or_is_damaged_is_passed_over_by_a_query_that_keeps_positions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sound = reconcile(start({Q0: 5}), metadata({Q0: Bounds(8, 9)}), everything)
    with caplog.at_level(logging.WARNING, logger="lakemq.spark"):
        assert report([*sound.losses, damaged(Q0, 8, 9)], fail=False, fail_on_reused=True) == 4
    assert len(caplog.records) == 2


@other_messages
def test_a_group_is_not_advised_to_record_what_ends_it_all_the_same(
    before: Offsets, held: TopicMetadata
) -> None:
    sound = reconcile(before, held, everything)
    for losses in (sound.losses, [damaged(Q0, 0, 1), *sound.losses]):
        said = advice(losses)
        assert "A Spark query goes on with failOnDataLoss=false" in said
        assert BOTH_END in said
        assert "record)" not in said
        assert "skip)" not in said


@pytest.mark.parametrize(("count", "shown", "more"), [(4, 4, False), (5, 5, False), (6, 5, True)])
def test_five_losses_are_shown_and_the_others_counted(count: int, shown: int, more: bool) -> None:
    many = [damaged(MessageQueue("orders", "b", i), 0, 1) for i in range(count)]
    with pytest.raises(InvalidRequest) as caught:
        report(many, fail=True)
    assert caught.value.code == "OFFSET_ILLEGAL"
    text = caught.value.detail
    end = (
        "; and 1 more"
        if more
        else f"broker b, queue {count - 1}: offsets [0, 1) are damaged in the store, 1 messages"
    )
    assert f"{end}. Set failOnDataLoss=false" in text
    assert (text.count("are damaged"), "and 1 more" in text, " more." in text) == (shown, more, more)


def test_a_lost_range_begins_where_it_is_asked_from_or_at_the_common_point() -> None:
    held = held_since((1, 0), (65, 2))
    for begin, from_offset in ((0, 2), (2, 2), (4, 4)):
        loss = past_common(Q0, 5, 1, held, begin)
        assert loss is not None
        assert (loss.queue, loss.start, loss.end, loss.epochs) == (Q0, from_offset, 5, (1, 65))
        assert "which the master of epoch 65 lacks" in loss.what
    assert past_common(Q0, 2, 1, held) is None
    bound = past_common(Q0, 5, 1, held_since((1, 0), (65, 7, True), low=7))
    assert bound is not None
    assert (bound.queue, bound.start, bound.end, bound.epochs) == (Q0, 5, 5, None)


def test_positions_of_an_unknown_epoch_are_named_once_five_of_them_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(7)]
    held = metadata({queue: held_since((1, 0), (65, 2)) for queue in queues}, epoch=65)
    say_unknown_epoch(start(dict.fromkeys(queues, 2)), held)
    say_unknown_epoch(start(dict.fromkeys(queues, 9)), metadata(dict.fromkeys(queues, Bounds(0, 9))))
    assert not caplog.records
    for count, more in ((5, ""), (6, "; and 1 more"), (7, "; and 2 more")):
        caplog.clear()
        say_unknown_epoch(start({**dict.fromkeys(queues, 2), **dict.fromkeys(queues[:count], 3)}), held)
        (record,) = caplog.records
        named = "; ".join(
            f"{queue} is at 3, and offsets from 2 on are of later epochs" for queue in queues[:5]
        )
        assert record.getMessage().endswith(f"going on: {named}{more}")
