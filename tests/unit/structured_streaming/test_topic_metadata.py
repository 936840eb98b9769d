"""From a subscription to queues: what exists, what is covered, what is refused."""

from __future__ import annotations

import pytest

from store_native.errors import InvalidRequest, LakeMQError, from_code
from structured_streaming import topic_metadata
from structured_streaming.offsets import Bounds, MessageQueue
from structured_streaming.subscription import Subscription
from tests.unit.structured_streaming.model_broker import ModelBroker


def broker() -> ModelBroker:
    made = ModelBroker()
    made.create("t0", 2)
    made.create("other", 3)
    made.held["t0"].queues[1].high = 7
    return made


def queue(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def test_a_view_has_the_epoch_the_ids_and_the_bounds_of_what_is_subscribed() -> None:
    held = broker()
    for chosen in (Subscription(topics=frozenset({"t0", "absent"})), Subscription(pattern="t.")):
        metadata = topic_metadata.load(held, chosen)
        assert (metadata.epoch, dict(metadata.topic_ids)) == (5, {"t0": held.topic_id("t0")})
        assert metadata.bounds == {queue("t0", 0): Bounds(0, 0), queue("t0", 1): Bounds(0, 7)}
    assigned = Subscription(queues={"t0": frozenset({1})})
    assert topic_metadata.load(held, assigned).bounds == {queue("t0", 1): Bounds(0, 7)}


def test_a_topic_of_a_store_without_ids_exists() -> None:
    held = broker()
    held.held["t0"].topic_id = ""
    assert topic_metadata.load(held, Subscription(topics=frozenset({"t0"}))).topic_ids == {"t0": ""}


def test_a_topic_deleted_while_it_is_looked_up_is_left_out_and_another_error_is_raised() -> None:
    class Fails(ModelBroker):
        code = "TOPIC_NOT_EXIST"

        def bounds(self, topic: str) -> dict[int, Bounds]:
            raise from_code(self.code, topic)

    held = Fails()
    held.create("t0", 1)
    metadata = topic_metadata.load(held, Subscription(pattern="t."))
    assert (metadata.topic_ids, metadata.bounds) == ({}, {})
    held.code = "SYSTEM_ERROR"
    with pytest.raises(LakeMQError, match="SYSTEM_ERROR"):
        topic_metadata.load(held, Subscription(pattern="t."))


def test_a_new_query_names_topics_and_queues_that_exist() -> None:
    held = broker()

    def check(chosen: Subscription) -> None:
        topic_metadata.check_exists(topic_metadata.load(held, chosen), chosen)

    check(Subscription(pattern="nothing"))
    check(Subscription(topics=frozenset({"t0"})))
    check(Subscription(queues={"t0": frozenset({0, 1})}))
    with pytest.raises(InvalidRequest, match=r"TOPIC_NOT_EXIST.*topic absent"):
        check(Subscription(topics=frozenset({"t0", "absent"})))
    with pytest.raises(InvalidRequest, match="topic t0 has no queue 2"):
        check(Subscription(queues={"t0": frozenset({1, 2})}))
    # Queue 2 of another topic is none of this one; of several the lowest is named.
    with pytest.raises(InvalidRequest, match="topic t0 has no queue 2"):
        check(Subscription(queues={"other": frozenset({2}), "t0": frozenset({3, 2})}))
