"""What waits to be sent: a batch for each lane, the longest waiting first, and each key in its order."""

from __future__ import annotations

from concurrent.futures import Future

from lakemq.pending_messages import PendingMessage, PendingMessages

BATCH_BYTES = 30
LINE = b"1234567890"


def waiting(*put: str, batch_bytes: int = BATCH_BYTES) -> PendingMessages:
    """Messages as ``lane``, ``lane/key`` or ``lane/key/topic``; a lane ``-`` is none."""
    pending = PendingMessages(batch_bytes)
    for number, text in enumerate(put):
        lane, key, topic, *_ = [*text.split("/"), "", ""]
        of_lane = None if lane == "-" else lane
        pending.put(PendingMessage(topic or "t", of_lane, None, key or None, LINE, number, 0.0, Future()))
    return pending


def batches(pending: PendingMessages) -> list[list[int]]:
    """Takes all of it, the longest waiting first."""
    found = []
    while (oldest := pending.oldest()) is not None:
        batch = pending.take_batch(oldest)
        found.append([message.number for message in batch])
        pending.ended(oldest.lane, batch)
    return found


def test_messages_of_alternating_lanes_are_a_batch_for_each() -> None:
    assert batches(waiting("a", "b", "a", "b", "-", "a")) == [[0, 2, 5], [1, 3], [4]]


def test_a_batch_has_one_topic_and_is_no_larger_than_it_may_be() -> None:
    assert batches(waiting("a", "a", "a//u", "a", "b")) == [[0, 1], [2], [3], [4]]
    assert batches(waiting("a", "a", "a", "a")) == [[0, 1, 2], [3]]
    assert batches(waiting("a", "a", batch_bytes=1)) == [[0], [1]], "one message always goes"


def test_messages_of_a_key_stay_in_one_lane_while_some_wait() -> None:
    pending = waiting("b/other", "a/k", "b/k", "b/k")
    assert batches(pending) == [[0], [1, 2, 3]]
    assert not pending
    assert pending.size == 0
    again = PendingMessage("t", "b", None, "k", LINE, 9, 0.0, Future())
    pending.put(again)
    assert again.lane == "b", "nothing of the key waits any more"


def test_of_a_lane_and_of_a_key_one_batch_is_on_its_way_at_a_time() -> None:
    pending = waiting("a", "a//u", "-/k", "b", "b/l")
    a, key, b = (pending.take_batch(first) for first in iter(pending.oldest, None))
    assert [[message.number for message in batch] for batch in (a, key, b)] == [[0], [2], [3, 4]]
    for lane, name in (("b", "k"), ("c", "l"), ("c", "k")):
        pending.put(PendingMessage("t", lane, None, name, LINE, 5, 0.0, Future()))
    assert pending.oldest() is None, "each waits for one that is on its way"
    pending.ended("a", a)
    second = pending.oldest()
    assert second is not None
    assert second.number == 1
    pending.take_batch(second)
    pending.ended("b", b)
    of_l = pending.oldest()
    assert of_l is not None
    assert (of_l.lane, of_l.sharding_key) == ("c", "l")
    assert len(pending.take_batch(of_l)) == 1
    pending.ended(None, key)
    of_k = pending.oldest()
    assert of_k is not None
    assert (of_k.lane, len(pending.take_batch(of_k))) == ("b", 2)


def test_a_lane_that_is_full_goes_before_the_linger_ends() -> None:
    pending = waiting("a", "b", "b", "b")
    full = pending.first_of_full_lane()
    assert full is not None
    assert [message.number for message in pending.take_batch(full)] == [1, 2, 3]
    assert pending.first_of_full_lane() is None


def test_what_is_taken_by_its_age_is_of_all_lanes_in_its_order() -> None:
    pending = waiting("a", "b", "a", "b")
    assert [message.number for message in pending.take_while(lambda message: message.number < 3)] == [0, 1, 2]
    assert batches(pending) == [[3]]


def test_messages_without_a_lane_are_put_into_theirs_by_number_and_keep_the_order_of_their_keys() -> None:
    pending = waiting("-/k", "a/x", "-", "-/k", "a/x", "-/l", "-/k")
    pending.put_apart(lambda message: None if message.sharding_key is None else "a")
    assert pending.size == 7 * len(LINE)
    assert batches(pending) == [[0, 1, 3], [2], [4, 5, 6]]
    assert pending.size == 0
    pending.put_apart(lambda message: "b")
    assert not pending


def test_of_a_lane_with_keys_and_of_those_without_a_lane_one_batch_is_on_its_way_at_a_time() -> None:
    for put, lane in ((("a/k", "a/l", "b"), "a"), (("-", "-//u", "b"), None)):
        pending = waiting(*put, batch_bytes=1)
        first = pending.oldest()
        assert first is not None
        batch = pending.take_batch(first)
        other = pending.oldest()
        assert other is not None
        assert (first.lane, other.lane) == (lane, "b"), "the second of the lane waits for the first"
        pending.ended(lane, batch)
        second = pending.oldest()
        assert second is not None
        assert second.number == 1


def test_what_has_a_key_is_laid_out_anew_where_it_is_known_whose_it_is_and_keeps_its_lane_elsewhere() -> None:
    pending = waiting("a/k", "a/l", "a", "b/m", "a/k")
    known = {"k": "b", "m": "c"}
    pending.lay_out(lambda message: known.get(message.sharding_key or ""))
    assert pending.size == 5 * len(LINE)
    assert batches(pending) == [[0, 4], [1, 2], [3]]
