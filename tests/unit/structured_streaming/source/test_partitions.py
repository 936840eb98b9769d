"""The slices of a batch: disjoint, complete, and the same whenever it is planned."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from structured_streaming.offsets import Bounds, EpochOffset, MessageQueue, Offsets, TopicMetadata, advance
from structured_streaming.source.partitions import QueueSlice, slices_between, split
from tests.unit.structured_streaming.strategies import metadata_values, offsets

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
HELD = {Q0: Bounds(0, 1000), Q1: Bounds(0, 1000)}


def at(positions: dict[MessageQueue, int]) -> Offsets:
    return Offsets(1, {"orders": "a1"}, positions)


def test_one_slice_per_queue_with_something_to_read() -> None:
    assert slices_between(at({Q0: 5, Q1: 7}), at({Q0: 9, Q1: 7}), HELD) == [QueueSlice(Q0, 5, 9, epoch=1)]


def test_a_new_queue_is_read_from_0() -> None:
    assert slices_between(at({Q0: 9}), at({Q0: 9, Q1: 3}), HELD) == [QueueSlice(Q1, 0, 3, epoch=1)]


def test_an_end_before_the_start_is_empty() -> None:
    assert slices_between(at({Q0: 9}), at({Q0: 5}), HELD) == []


def test_what_expired_since_is_left_out() -> None:
    assert slices_between(at({Q0: 1}), at({Q0: 9}), {Q0: Bounds(4, 20)}) == [QueueSlice(Q0, 4, 9, epoch=1)]


def test_nothing_is_read_behind_the_common_point_of_another_epoch() -> None:
    later = {Q0: Bounds(0, 1000, (EpochOffset(1, 0), EpochOffset(65, 7)))}
    assert slices_between(at({Q0: 5}), at({Q0: 9}), later) == [QueueSlice(Q0, 5, 7, epoch=1)]
    assert slices_between(at({Q0: 8}), at({Q0: 9}), later) == []
    planned = Offsets(65, {"orders": "a1"}, {Q0: 9})
    assert slices_between(at({Q0: 20}), planned, later) == [QueueSlice(Q0, 7, 9, epoch=65)]
    assert slices_between(at({Q0: 5}), planned, later) == [QueueSlice(Q0, 5, 9, epoch=65)]


@given(offsets(), metadata_values())
def test_slices_cover_exactly_the_batch(start: Offsets, metadata: TopicMetadata) -> None:
    ends = {queue: max(start.position(queue), held.max_offset) for queue, held in metadata.bounds.items()}
    pieces = slices_between(start, advance(start, metadata, ends), metadata.bounds)
    covered = {piece.queue: (piece.start, piece.end) for piece in pieces}
    assert len(covered) == len(pieces)
    for queue, end in ends.items():
        begin = max(start.position(queue), metadata.bounds[queue].min_offset)
        assert covered.get(queue) == ((begin, end) if end > begin else None)


pieces_ = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=8)


@given(pieces_, st.none() | st.integers(1, 40), st.none() | st.integers(1, 200))
def test_splitting_keeps_every_message_once_and_in_order(
    given_pieces: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [QueueSlice(MessageQueue("t", "b", i), a, a + n) for i, (a, n) in enumerate(given_pieces)]
    parts = split(whole, min_partitions=min_partitions, max_records=max_records)
    flat = [(part.queue, offset) for part in parts for offset in range(part.start, part.end)]
    assert flat == [(piece.queue, offset) for piece in whole for offset in range(piece.start, piece.end)]
    assert all(len(part) for part in parts)
    if max_records is not None:
        assert all(len(part) <= max_records for part in parts)


def test_min_partitions_cuts_the_larger_slices_more() -> None:
    parts = split([QueueSlice(Q0, 0, 900), QueueSlice(Q1, 0, 100)], min_partitions=10)
    assert [len(part) for part in parts if part.queue == Q0] == [100] * 9
    assert [len(part) for part in parts if part.queue == Q1] == [100]


def test_a_slice_says_which_store_it_was_planned_for() -> None:
    assert slices_between(at({Q0: 5}), at({Q0: 9}), HELD, "s") == [QueueSlice(Q0, 5, 9, "s", 1)]


def test_one_slice_is_cut_and_enough_of_them_are_not() -> None:
    assert [len(part) for part in split([QueueSlice(Q0, 0, 9)], min_partitions=3)] == [3, 3, 3]
    enough = [QueueSlice(Q0, 0, 9), QueueSlice(Q1, 0, 1)]
    assert split(enough, min_partitions=2) == enough


def test_a_slice_pickles() -> None:
    piece = QueueSlice(Q0, 0, 900, "store")
    assert pickle.loads(pickle.dumps(piece)) == piece
