"""The offset JSON lives in checkpoints: what it says today must be read for ever."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_native.errors import InvalidRequest
from structured_streaming.offsets import (
    Bounds,
    MessageQueue,
    Offsets,
    TopicMetadata,
    advance,
    illegal,
    initial,
    planned_from,
    same_topic,
    start_in,
    still_valid,
)
from tests.unit.structured_streaming.strategies import metadata_values, offsets

ORDERS_0 = MessageQueue("orders", "broker-a", 0)
ORDERS_1 = MessageQueue("orders", "broker-a", 1)


def test_json_is_the_published_form() -> None:
    value = Offsets(3, {"orders": "a1"}, {ORDERS_1: 7, ORDERS_0: 12})
    topics = '"topics":{"orders":{"id":"a1","brokers":{"broker-a":{"0":12,"1":7}}}}}'
    published = '{"v":1,"epoch":3,"epoch_of":"log",' + topics
    assert json.dumps(value.to_json(), separators=(",", ":")) == published
    assert Offsets.from_json(json.loads(published)) == value
    before = json.loads('{"v":1,"epoch":3,' + topics)
    assert Offsets.from_json(before) == value
    assert Offsets.from_json(before).to_json() == before, "Spark compares text: nothing new is no new offset"


@pytest.mark.parametrize(
    ("epoch", "mark", "said"),
    [(1, {}, False), (65, {}, True), (1, {"epoch_of": "log"}, True), (65, {"epoch_of": "log"}, True)],
)
def test_an_offset_of_before_the_mark_says_no_epoch_where_it_says_the_first(
    epoch: int, mark: dict[str, str], said: bool
) -> None:
    """Releases that read a store by its path wrote 1, whatever the log's epoch was."""
    assert Offsets.from_json({"v": 1, "epoch": epoch, **mark, "topics": {}}).says_epoch is said
    assert Offsets(epoch).says_epoch


@given(offsets())
def test_json_round_trip_keeps_everything(value: Offsets) -> None:
    assert Offsets.from_json(json.loads(json.dumps(value.to_json()))) == value


@given(offsets(), st.randoms())
def test_equal_positions_give_equal_text(value: Offsets, random: object) -> None:
    shuffled = list(value.queues.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    again = Offsets(value.epoch, dict(value.topic_ids), dict(shuffled))
    assert json.dumps(again.to_json()) == json.dumps(value.to_json())


def test_queue_ids_sort_as_numbers() -> None:
    many = {MessageQueue("orders", "b", i): 1 for i in range(12)}
    queues = Offsets(1, {"orders": ""}, many).to_json()["topics"]["orders"]["brokers"]["b"]
    assert list(queues) == [str(i) for i in range(12)]


@pytest.mark.parametrize(
    "text",
    [
        '{"v":2,"epoch":1,"topics":{}}',
        "{}",
        '{"v":1,"epoch":1,"topics":{"t":{"id":"a"}}}',
        '{"v":1,"topics":{}}',
    ],
)
def test_an_offset_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        Offsets.from_json(json.loads(text))


def test_a_queue_never_seen_starts_at_its_beginning() -> None:
    assert Offsets(1, {"orders": "a1"}, {ORDERS_0: 12}).position(ORDERS_1) == 0


def test_a_batch_over_a_topic_made_again_starts_at_0() -> None:
    start = Offsets(1, {"orders": "a1"}, {ORDERS_0: 12})
    assert start_in(start, Offsets(1, {"orders": "zz"}, {ORDERS_0: 5}), ORDERS_0) == 0
    assert start_in(start, Offsets(1, {"orders": "a1"}, {ORDERS_0: 15}), ORDERS_0) == 12


def test_a_batch_over_a_store_put_back_starts_at_0_and_a_failover_changes_nothing() -> None:
    start = Offsets(2, {"orders": "a1"}, {ORDERS_0: 12})
    assert start_in(start, Offsets(1, {"orders": "a1"}, {ORDERS_0: 5}), ORDERS_0) == 0
    assert start_in(start, Offsets(3, {"orders": "a1"}, {ORDERS_0: 15}), ORDERS_0) == 12


def test_topic_ids_are_compared_only_when_both_are_known() -> None:
    assert same_topic("a", "a")
    assert same_topic("", "a")
    assert same_topic(None, "a")
    assert not same_topic("a", "b")


def test_an_empty_new_queue_does_not_change_the_offset() -> None:
    start = Offsets(1, {"orders": "a1"}, {ORDERS_0: 12})
    metadata = TopicMetadata(1, {"orders": "a1"}, {ORDERS_0: Bounds(0, 12), ORDERS_1: Bounds(0, 0)})
    assert advance(start, metadata, {ORDERS_0: 12, ORDERS_1: 0}) == start


def test_positions_of_topics_no_longer_subscribed_are_carried() -> None:
    other = MessageQueue("payments", "broker-a", 0)
    start = Offsets(1, {"orders": "a1", "payments": "b2"}, {ORDERS_0: 12, other: 4})
    metadata = TopicMetadata(1, {"orders": "a1"}, {ORDERS_0: Bounds(0, 20)})
    end = advance(start, metadata, {ORDERS_0: 20})
    assert end.queues == {ORDERS_0: 20, other: 4}
    assert end.topic_ids == {"orders": "a1", "payments": "b2"}


def test_positions_of_queues_that_are_gone_are_dropped() -> None:
    start = Offsets(1, {"orders": "a1"}, {ORDERS_0: 12, ORDERS_1: 4})
    metadata = TopicMetadata(1, {"orders": "a1"}, {ORDERS_0: Bounds(0, 20)})
    assert advance(start, metadata, {ORDERS_0: 20}, {ORDERS_1}).queues == {ORDERS_0: 20}


@given(offsets(), metadata_values())
def test_advance_names_a_topic_id_for_every_queue(start: Offsets, metadata: TopicMetadata) -> None:
    end = advance(start, metadata, {queue: held.max_offset for queue, held in metadata.bounds.items()})
    assert {queue.topic for queue in end.queues} == set(end.topic_ids)
    assert Offsets.from_json(end.to_json()) == end
    for queue, held in metadata.bounds.items():
        assert end.position(queue) == held.max_offset


@given(metadata_values())
def test_initial_names_every_queue(metadata: TopicMetadata) -> None:
    start = initial(metadata, {queue: held.min_offset for queue, held in metadata.bounds.items()})
    assert set(start.queues) == set(metadata.bounds)
    assert Offsets.from_json(start.to_json()) == start


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {"v": 1, "epoch": 1, "topics": []},
        {"v": 1, "epoch": 1, "topics": {"t": []}},
        {"v": 1, "epoch": 1, "topics": {"t": {"id": "a", "brokers": {"b": {"zero": 1}}}}},
        {"v": 1, "epoch": 1, "topics": {"t": {"id": "a", "brokers": {"b": {"0": None}}}}},
        {"v": 1, "epoch": "first", "topics": {}},
    ],
    ids=str,
)
def test_whatever_is_no_offset_is_refused_with_that_code(value: object) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        Offsets.from_json(value)  # type: ignore[arg-type]


def test_a_topic_without_an_id_may_be_any() -> None:
    assert same_topic("a", "")
    assert same_topic("a", None)


def test_initial_has_the_epoch_and_only_the_ids_of_what_it_names() -> None:
    metadata = TopicMetadata(7, {"orders": "a1", "payments": "b2"}, {ORDERS_0: Bounds(0, 12)})
    assert initial(metadata, {ORDERS_0: 3}) == Offsets(7, {"orders": "a1"}, {ORDERS_0: 3})


def test_advance_takes_the_stores_epoch_and_the_topics_new_id() -> None:
    start = Offsets(2, {"orders": "a1"}, {ORDERS_0: 12, ORDERS_1: 4})
    metadata = TopicMetadata(3, {"orders": "zz"}, {ORDERS_0: Bounds(0, 2)})
    assert advance(start, metadata, {ORDERS_0: 2}) == Offsets(3, {"orders": "zz"}, {ORDERS_0: 2})


def test_nothing_is_carried_into_an_older_store_and_all_into_the_same_or_a_later_one() -> None:
    other = MessageQueue("payments", "broker-a", 0)
    start = Offsets(2, {"orders": "a1", "payments": "b2"}, {ORDERS_0: 12, other: 4})
    for epoch, carried in [(1, {}), (2, {other: 4}), (3, {other: 4})]:
        metadata = TopicMetadata(epoch, {"orders": "a1"}, {ORDERS_0: Bounds(0, 20)})
        end = advance(start, metadata, {ORDERS_0: 20})
        assert (end.epoch, end.queues) == (epoch, {ORDERS_0: 20, **carried})


def test_a_known_queue_stays_named_at_0_and_a_new_one_is_named_from_its_first_message() -> None:
    start = Offsets(1, {"orders": "a1"}, {ORDERS_0: 0})
    metadata = TopicMetadata(1, {"orders": "a1"}, {ORDERS_0: Bounds(0, 0), ORDERS_1: Bounds(0, 1)})
    assert advance(start, metadata, {ORDERS_0: 0}).queues == {ORDERS_0: 0}
    assert advance(start, metadata, {ORDERS_0: 0, ORDERS_1: 1}).queues == {ORDERS_0: 0, ORDERS_1: 1}
    assert advance(start, metadata, {ORDERS_0: 0, ORDERS_1: 0}) == start


def test_a_new_queue_with_nothing_to_read_is_named_along_with_what_moves() -> None:
    start = Offsets(1, {"orders": "a1"}, {ORDERS_0: 12})
    new = MessageQueue("payments", "broker-a", 0)
    metadata = TopicMetadata(
        1, {"orders": "a1", "payments": "b2"}, {ORDERS_0: Bounds(0, 20), new: Bounds(0, 0)}
    )
    end = advance(start, metadata, {ORDERS_0: 20, new: 0})
    assert end == Offsets(1, {"orders": "a1", "payments": "b2"}, {ORDERS_0: 20, new: 0})


def test_a_batch_in_the_same_epoch_starts_where_the_last_one_ended() -> None:
    start = Offsets(2, {"orders": "a1"}, {ORDERS_0: 12})
    assert start_in(start, Offsets(2, {"orders": "a1"}, {ORDERS_0: 15}), ORDERS_0) == 12


def test_a_planned_end_is_valid_for_the_same_topic_in_the_same_or_a_later_epoch() -> None:
    other = MessageQueue("payments", "broker-a", 0)
    end = Offsets(2, {"orders": "a1", "payments": "b2"}, {ORDERS_0: 12, other: 4})
    held = {ORDERS_0: Bounds(0, 20), other: Bounds(0, 9)}
    for epoch, topics in [(1, set()), (2, {"orders"}), (3, {"orders"})]:
        valid = still_valid(end, TopicMetadata(epoch, {"orders": "a1", "payments": "zz"}, held))
        assert {queue.topic for queue in valid} == topics


def test_a_planned_batch_begins_at_the_positions_that_its_end_has_lived_with() -> None:
    new, gone = MessageQueue("payments", "broker-a", 0), MessageQueue("refunds", "broker-a", 0)
    start = Offsets(3, {"orders": "a1", "refunds": "c3"}, {ORDERS_0: 12, gone: 7})
    end = Offsets(4, {"orders": "a1", "payments": "b2"}, {ORDERS_0: 15, new: 9})
    assert planned_from(start, end) == Offsets(3, end.topic_ids, {ORDERS_0: 12, new: 0})
    made_again = Offsets(3, {"orders": "zz"}, {ORDERS_0: 15})
    assert planned_from(start, made_again) == Offsets(3, {"orders": "zz"}, {ORDERS_0: 0})
    put_back = Offsets(2, {"orders": "a1"}, {ORDERS_0: 15})
    assert planned_from(start, put_back) == Offsets(2, {"orders": "a1"}, {ORDERS_0: 0})


def test_a_wrong_option_is_said_with_its_code_and_its_name() -> None:
    wrong = illegal("it is wrong", option="startingOffsets")
    assert isinstance(wrong, InvalidRequest)
    assert (wrong.code, wrong.detail, wrong.context) == (
        "ARGUMENT_ILLEGAL",
        "it is wrong",
        {"option": "startingOffsets"},
    )
