"""maxOffsetsPerTrigger: exactly the limit, fair, and never beyond a queue's end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from structured_streaming.offsets import MessageQueue
from structured_streaming.source.read_limit import limit_ends
from tests.unit.structured_streaming.strategies import counts, queues

ranges = st.dictionaries(queues, st.tuples(counts, st.integers(-5, 10_000)), min_size=1, max_size=20)
Ranges = dict[MessageQueue, tuple[int, int]]


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("t", "b", queue_id)


def split(given_ranges: Ranges) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    starts = {queue: start for queue, (start, _) in given_ranges.items()}
    return starts, {queue: start + size for queue, (start, size) in given_ranges.items()}


@given(ranges, st.integers(1, 30_000))
def test_takes_exactly_the_limit_or_the_whole_backlog(given_ranges: Ranges, limit: int) -> None:
    starts, ends = split(given_ranges)
    limited = limit_ends(starts, ends, limit)
    taken = sum(max(0, limited[queue] - starts[queue]) for queue in starts)
    assert taken == min(limit, sum(max(0, size) for _, size in given_ranges.values()))


@given(ranges, st.integers(1, 30_000))
def test_never_goes_beyond_an_end_nor_back(given_ranges: Ranges, limit: int) -> None:
    starts, ends = split(given_ranges)
    limited = limit_ends(starts, ends, limit)
    assert limited.keys() == ends.keys()
    for queue_, end in limited.items():
        assert min(starts[queue_], ends[queue_]) <= end <= ends[queue_]


@given(ranges, st.integers(1, 30_000))
def test_the_same_question_has_the_same_answer_in_any_order(given_ranges: Ranges, limit: int) -> None:
    starts, ends = split(given_ranges)
    turned = dict(reversed(list(ends.items())))
    assert limit_ends(starts, ends, limit) == limit_ends(starts, turned, limit)


@given(ranges, st.integers(20, 30_000))
def test_every_queue_with_a_backlog_gets_something(given_ranges: Ranges, limit: int) -> None:
    starts, ends = split(given_ranges)
    limited = limit_ends(starts, ends, limit)
    assert all(limited[queue] > starts[queue] for queue in starts if ends[queue] > starts[queue])


def test_shares_follow_the_backlog() -> None:
    starts = {queue(0): 0, queue(1): 0, queue(2): 0}
    limited = limit_ends(starts, {queue(0): 9_000, queue(1): 900, queue(2): 100}, 1_000)
    assert [limited[queue(i)] for i in range(3)] == [898, 91, 11]


def test_with_fewer_messages_than_queues_the_queues_take_turns() -> None:
    starts = {queue(i): 0 for i in range(5)}
    ends = {queue(i): 100 for i in range(5)}
    served: set[MessageQueue] = set()
    for _ in range(3):
        limited = limit_ends(starts, ends, 2)
        served |= {queue for queue in starts if limited[queue] > starts[queue]}
        starts = limited
    assert served == set(ends)


def test_the_order_of_the_queues_does_not_change_whose_turn_it_is() -> None:
    starts = {queue(i): 0 for i in range(4)}
    ends = dict.fromkeys(starts, 10)
    turned = dict(reversed(list(starts.items())))
    wanted = {queue(0): 1, queue(1): 0, queue(2): 0, queue(3): 0}
    assert limit_ends(starts, ends, 1) == limit_ends(turned, ends, 1) == wanted


def test_a_limit_of_exactly_the_backlog_takes_all() -> None:
    starts = {queue(0): 4, queue(1): 0}
    assert limit_ends(starts, {queue(0): 5, queue(1): 1}, 2) == {queue(0): 5, queue(1): 1}
    assert limit_ends(starts, {queue(0): 9, queue(1): 1}, 6) == {queue(0): 9, queue(1): 1}


def test_with_as_many_messages_as_queues_each_has_one() -> None:
    starts = {queue(0): 3, queue(1): 7}
    assert limit_ends(starts, {queue(0): 900, queue(1): 8}, 2) == {queue(0): 4, queue(1): 8}


def test_an_empty_queue_has_no_turn() -> None:
    starts = {queue(0): 0, queue(1): 0, queue(2): 0}
    ends = {queue(0): 0, queue(1): 5, queue(2): 5}
    assert limit_ends(starts, ends, 2) == {queue(0): 0, queue(1): 1, queue(2): 1}


def test_what_is_left_over_goes_to_the_largest_remainder_and_then_to_the_first() -> None:
    starts = {queue(0): 0, queue(1): 0, queue(2): 0}
    assert limit_ends(starts, {queue(0): 1, queue(1): 2, queue(2): 2}, 4) == {
        queue(0): 1, queue(1): 2, queue(2): 1,
    }  # fmt: skip
