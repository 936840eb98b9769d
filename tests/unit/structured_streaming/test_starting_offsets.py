"""Where a query without a checkpoint starts: one number per queue, or a clear refusal."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from store_native.errors import InvalidRequest
from structured_streaming.offsets import Bounds, MessageQueue, Offsets, TopicMetadata
from structured_streaming.starting_offsets import (
    EARLIEST,
    LATEST,
    ByBroker,
    ByTimestamps,
    Explicit,
    GroupPosition,
    Lookups,
    Position,
    SinceTimestamp,
    resolve,
    with_new_queues,
)

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
EMPTY = MessageQueue("orders", "broker-a", 2)
VIEW = TopicMetadata(1, {"orders": "a1"}, {Q0: Bounds(10, 110), Q1: Bounds(0, 50), EMPTY: Bounds(0, 0)})


def offset_by_time(queue: MessageQueue, timestamp: int) -> int:
    """A store whose message n was stored at time n."""
    bounds = VIEW.bounds[queue]
    return min(max(timestamp, bounds.min_offset), bounds.max_offset)


def resolved(position: Position, committed: Mapping[tuple[str, int], int] | None = None) -> list[int]:
    found = resolve(position, VIEW, Lookups(offset_by_time, lambda: committed or {}), "startingOffsets")
    return [found[queue] for queue in (Q0, Q1, EMPTY)]


def test_earliest_and_latest_are_the_bounds() -> None:
    assert resolved(EARLIEST) == [10, 0, 0]
    assert resolved(LATEST) == [110, 50, 0]


def test_explicit_offsets_know_earliest_and_latest() -> None:
    assert resolved(Explicit({("orders", 0): 20, ("orders", 1): -2, ("orders", 2): -1})) == [20, 0, 0]


@pytest.mark.parametrize("topics_go", [False, True])
def test_a_queue_that_came_since_the_start_was_decided_begins_at_its_first_message(topics_go: bool) -> None:
    decided = (
        Explicit({("orders", 1): 7}),
        ByBroker({("orders", "broker-a", 1): 7, ("orders", "broker-b", 0): 9, ("orders", "", 2): -1}),
    )
    for position in decided:
        completed = with_new_queues(position, VIEW, "broker-a", topics_go=topics_go)
        assert resolved(completed) == [10, 7, 0]
    assert with_new_queues(LATEST, VIEW, "broker-a", topics_go=topics_go) is LATEST


def test_of_a_pattern_a_topic_that_is_gone_is_left_out_of_the_start() -> None:
    decided = Explicit({("orders", 0): 20, ("gone", 0): 5})
    completed = with_new_queues(decided, VIEW, "broker-a", topics_go=True)
    assert resolved(completed) == [20, 0, 0]
    named = with_new_queues(decided, VIEW, "broker-a", topics_go=False)
    with pytest.raises(InvalidRequest, match="not read: gone/0"):
        resolved(named)


def test_explicit_offsets_take_the_form_of_a_checkpoint() -> None:
    committed = Offsets(1, {"orders": "a1"}, {Q0: 20, Q1: 5, EMPTY: 0})
    assert resolved(Explicit.from_checkpoint(committed.to_json())) == [20, 5, 0]


def test_explicit_offsets_must_name_every_queue_and_no_other() -> None:
    with pytest.raises(InvalidRequest, match="missing orders/1, orders/2"):
        resolved(Explicit({("orders", 0): 20}))
    all_and_more = {("orders", i): -2 for i in range(4)}
    with pytest.raises(InvalidRequest, match="not read: orders/3"):
        resolved(Explicit(all_and_more))


def test_an_explicit_offset_behind_the_end_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="queue 1 ends at 50, before 51"):
        resolved(Explicit({("orders", 0): 20, ("orders", 1): 51, ("orders", 2): -1}))


def test_a_time_is_the_first_message_stored_then_or_later() -> None:
    assert resolved(SinceTimestamp(40, "latest")) == [40, 40, 0]
    assert resolved(ByTimestamps({("orders", 0): 40, ("orders", 1): 7, ("orders", 2): 9}, "latest")) == [
        40,
        7,
        0,
    ]


def test_a_time_after_the_newest_message_is_the_end_or_an_error() -> None:
    assert resolved(SinceTimestamp(60, "latest")) == [60, 50, 0]
    with pytest.raises(InvalidRequest, match="queue 1 has no message stored at or after 60"):
        resolved(SinceTimestamp(60, "error"))


def test_a_group_starts_where_it_stands() -> None:
    committed = {("orders", 0): 33, ("orders", 1): 44, ("orders", 2): 0}
    assert resolved(GroupPosition(LATEST), committed) == [33, 44, 0]


def test_a_queue_new_to_a_group_that_knows_the_topic_is_read_from_its_beginning() -> None:
    assert resolved(GroupPosition(LATEST), {("orders", 1): 44}) == [10, 44, 0]


def test_a_topic_new_to_a_group_starts_at_the_fallback() -> None:
    assert resolved(GroupPosition(LATEST), {("other", 0): 1}) == [110, 50, 0]
    assert resolved(GroupPosition(EARLIEST), {("other", 0): 1}) == [10, 0, 0]


def test_explicit_earliest_is_the_first_message_held_and_an_end_is_allowed() -> None:
    assert resolved(Explicit({("orders", 0): -2, ("orders", 1): -1, ("orders", 2): 0})) == [10, 50, 0]
    assert resolved(Explicit({("orders", 0): 110, ("orders", 1): 50, ("orders", 2): 0})) == [110, 50, 0]


def test_times_must_name_every_queue_and_no_other() -> None:
    with pytest.raises(InvalidRequest, match="missing orders/1, orders/2"):
        resolved(ByTimestamps({("orders", 0): 20}, "latest"))
    with pytest.raises(InvalidRequest, match="not read: orders/3"):
        resolved(ByTimestamps({("orders", i): 5 for i in range(4)}, "latest"))


def test_a_position_that_cannot_be_names_its_option() -> None:
    given: list[Position] = [
        Explicit({("orders", 0): 20}),
        Explicit({("orders", i): -2 for i in range(4)}),
        Explicit({("orders", 0): 111, ("orders", 1): -2, ("orders", 2): -2}),
        ByTimestamps({("orders", 0): 20}, "latest"),
        ByTimestamps({("orders", i): 5 for i in range(4)}, "latest"),
    ]
    for position in given:
        with pytest.raises(InvalidRequest, match="startingOffsets") as refused:
            resolved(position)
        assert refused.value.context["option"] == "startingOffsets"


def test_of_many_queues_the_first_eight_are_named() -> None:
    bounds = {MessageQueue("orders", "broker-a", i): Bounds(0, 1) for i in range(20)}
    lookups = Lookups(offset_by_time, dict)
    with pytest.raises(InvalidRequest) as refused:
        resolve(Explicit({}), TopicMetadata(1, {"orders": "a1"}, bounds), lookups, "o")
    named = ", ".join(f"orders/{i}" for i in range(8))
    assert refused.value.detail.endswith(f"missing {named}")


def test_a_time_of_one_queue_that_nothing_is_as_young_as_is_the_end_or_an_error() -> None:
    times = {("orders", 0): 40, ("orders", 1): 60, ("orders", 2): 9}
    assert resolved(ByTimestamps(times, "latest")) == [40, 50, 0]
    with pytest.raises(InvalidRequest, match="queue 1 has no message stored at or after 60"):
        resolved(ByTimestamps(times, "error"))


def test_explicit_offsets_know_their_numbers() -> None:
    assert sorted(Explicit({("orders", 0): 20, ("orders", 1): -2}).values()) == [-2, 20]


def test_a_queue_that_holds_nothing_is_not_asked_and_one_that_holds_one_message_is() -> None:
    held = {Q0: Bounds(4, 4), Q1: Bounds(4, 5)}
    asked: list[MessageQueue] = []

    def by_time(queue: MessageQueue, timestamp: int) -> int:
        asked.append(queue)
        return 4

    found = resolve(
        SinceTimestamp(1, "error"), TopicMetadata(1, {"orders": "a1"}, held), Lookups(by_time, dict), "o"
    )
    assert (found, asked) == ({Q0: 4, Q1: 4}, [Q1])


def test_a_message_stored_since_the_view_was_taken_is_not_the_start() -> None:
    lookups = Lookups(lambda queue, timestamp: 999, dict)
    assert resolve(SinceTimestamp(1, "latest"), VIEW, lookups, "o") == {Q0: 110, Q1: 50, EMPTY: 0}
