"""What a query plans over a model of a broker, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.source import batch_bound
from structured_streaming.source.query_run import QueryRun
from tests.unit.structured_streaming.model_broker import ModelBroker

EARLIEST = {"startingOffsets": "earliest"}


def broker(*ends: int, topic: str = "t0") -> ModelBroker:
    made = ModelBroker()
    create(made, topic, *ends)
    return made


def create(made: ModelBroker, topic: str, *ends: int) -> None:
    made.create(topic, len(ends))
    for queue, end in zip(made.held[topic].queues.values(), ends, strict=True):
        queue.high = end


def run(held: ModelBroker, **given: str) -> QueryRun:
    return QueryRun(parse_read({"path": "/a", "subscribePattern": "t."} | given, streaming=True), held)


def planned(query: QueryRun, start: Offsets, end: Offsets) -> list[tuple[str, int, int, int]]:
    return [(p.queue.topic, p.queue.queue_id, p.start, p.end) for p in query.slices(start, end)]


def queue(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def test_the_first_batch_of_a_query_that_starts_at_the_end_reads_nothing() -> None:
    held = broker(4)
    query = run(held)
    start = query.initial()
    held.held["t0"].queues[0].high = 9
    end = query.latest(start, None)
    assert (start.position(queue("t0", 0)), end.position(queue("t0", 0))) == (4, 4)
    # Planned again after a crash it starts later, and what came in between is in the next batch.
    again = run(held)
    assert planned(again, again.initial(), end) == []
    following = again.latest(end, None)
    assert planned(again, end, following) == [("t0", 0, 4, 9)]


def test_the_first_batch_of_a_query_that_starts_at_the_beginning_reads_all() -> None:
    held = broker(4, 0)
    query = run(held, **EARLIEST)
    start = query.initial()
    held.held["t0"].queues[1].high = 2
    assert planned(query, start, query.latest(start, None)) == [("t0", 0, 0, 4), ("t0", 1, 0, 2)]


def test_an_open_batch_is_read_as_planned_by_a_query_that_subscribes_to_less() -> None:
    held = broker(4)
    query = run(held, **EARLIEST)
    end = query.latest(query.initial(), None)
    create(held, "t1", 2)
    narrower = run(held, subscribePattern="t1", **EARLIEST)
    start = narrower.initial()
    assert planned(narrower, start, end) == [("t0", 0, 0, 4)]
    following = narrower.latest(end, None)
    assert planned(narrower, end, following) == [("t1", 0, 0, 2)]
    # Subscribed to again it goes on where the open batch ended.
    held.held["t0"].queues[0].high = 6
    assert planned(run(held), following, run(held).latest(following, None)) == [("t0", 0, 4, 6)]


def test_a_later_open_batch_is_read_from_where_it_began() -> None:
    held = broker(4)
    query = run(held, **EARLIEST)
    first = query.latest(query.initial(), None)
    held.held["t0"].queues[0].high = 9
    second = query.latest(first, None)
    assert planned(run(held, subscribePattern="t1"), first, second) == [("t0", 0, 4, 9)]


def test_the_first_batch_of_a_query_that_began_at_the_end_reads_nothing_of_what_it_left_out() -> None:
    held = broker(4)
    end = run(held).latest(run(held).initial(), None)
    narrower = run(held, subscribePattern="t1")
    assert planned(narrower, narrower.initial(), end) == []


def test_what_an_open_batch_lost_of_a_topic_that_is_no_more_subscribed_is_said() -> None:
    held = broker(4)
    query = run(held, **EARLIEST)
    first = query.latest(query.initial(), None)
    held.held["t0"].queues[0].high = 9
    second = query.latest(first, None)
    held.held["t0"].queues[0].low = 6
    narrower = run(held, subscribePattern="t1")
    with pytest.raises(InvalidRequest, match=r"offsets \[4, 6\) expired before they were read, 2 messages"):
        narrower.slices(first, second)
    del held.held["t0"]
    with pytest.raises(InvalidRequest, match="topic t0 no longer exists"):
        run(held, subscribePattern="t1").slices(first, second)


@pytest.mark.parametrize("epoch", [4, 5])
def test_what_expires_of_an_open_batch_is_said_in_a_store_that_was_put_back(epoch: int) -> None:
    held = broker(1)
    query = run(held, failOnDataLoss="false", **EARLIEST)
    first = query.latest(query.initial(), None)
    held.epoch_now = 4
    second = query.latest(first, None)
    assert planned(query, first, second) == [("t0", 0, 0, 1)]
    held.held["t0"].queues[0].low = 1
    held.epoch_now = epoch  # a failover later it is as high as it was
    with pytest.raises(InvalidRequest, match=r"offsets \[0, 1\) expired before they were read, 1 messages"):
        run(held).slices(first, second)


def test_a_run_over_what_is_available_ends_where_the_queues_ended() -> None:
    held = broker(4, 0)
    query = run(held, **EARLIEST)
    query.freeze()
    held.held["t0"].queues[0].high = 9
    create(held, "t1", 3)
    start = query.initial()
    end = query.latest(start, None)
    assert planned(query, start, end) == [("t0", 0, 0, 4)]
    assert query.latest(end, None) == end


def test_a_job_bounds_its_batches_from_one_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "bound.json"
    query = run(broker(9), batchBoundFile=str(file), **EARLIEST)
    first = query.initial()
    batch_bound.write(file, 2)
    second = query.latest(first, 5)
    batch_bound.write(file, 7)
    third = query.latest(second, 5)  # the query's own bound is the lower one
    file.unlink()
    last = query.latest(third, None)
    assert [end.position(queue("t0", 0)) for end in (first, second, third, last)] == [0, 2, 7, 9]


def test_a_job_pauses_queues_from_one_batch_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "bound.json"
    held = broker(9, 5)
    query = run(held, batchBoundFile=str(file), **EARLIEST)
    first = query.initial()
    batch_bound.read_up_to(file, {queue("t0", 0): 0})
    second = query.latest(first, 4)
    assert query.latest(second, None).position(queue("t0", 0)) == 0
    batch_bound.read_up_to(file, {})
    third = query.latest(second, None)
    found = [[end.position(queue("t0", n)) for n in (0, 1)] for end in (first, second, third)]
    assert found == [[0, 0], [0, 4], [9, 5]]


def test_a_job_has_queues_read_no_further_than_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "bound.json"
    held = broker(9, 5)
    query = run(held, batchBoundFile=str(file), **EARLIEST)
    batch_bound.read_up_to(file, {queue("t0", 0): 4, queue("t0", 1): 7})
    first = query.latest(query.initial(), None)
    held.held["t0"].queues[1].high = 8
    second = query.latest(first, None)
    batch_bound.read_up_to(file, {queue("t0", 0): 2, queue("t0", 1): 7})
    third = query.latest(second, None)
    found = [[end.position(queue("t0", n)) for n in (0, 1)] for end in (first, second, third)]
    assert found == [[4, 5], [4, 7], [4, 7]]


def test_a_job_has_queues_that_came_later_read_of_one_topic_only(tmp_path: Path) -> None:
    file = tmp_path / "bound.json"
    held = broker(9)
    query = run(held, batchBoundFile=str(file), **EARLIEST)
    start = query.initial()
    create(held, "t1", 3)
    create(held, "t2", 4)
    batch_bound.read_up_to(file, {queue("t0", 0): 6}, others_only_of="t2")
    bounded = query.latest(start, None)
    assert planned(query, start, bounded) == [("t0", 0, 0, 6), ("t2", 0, 0, 4)]
    batch_bound.read_up_to(file, {})
    assert planned(query, bounded, query.latest(bounded, None)) == [("t0", 0, 6, 9), ("t1", 0, 0, 3)]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"ends": 7, "others": null}', '{"ends": [[1]]}'])
def test_ends_that_cannot_be_read_count_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bound.json"
    query = run(broker(9), batchBoundFile=str(file), **EARLIEST)
    batch_bound.read_up_to(file, {queue("t0", 0): 0})
    (written,) = tmp_path.iterdir()
    written.write_text(text)
    assert query.latest(query.initial(), None).position(queue("t0", 0)) == 9


def test_a_loss_fails_the_query_unless_it_may_go_on() -> None:
    held = broker(9)
    start = run(held, **EARLIEST).initial()
    held.held["t0"].queues[0].low = 3
    with pytest.raises(InvalidRequest, match=r"offsets \[0, 3\) expired"):
        run(held, **EARLIEST).latest(start, None)
    tolerant = run(held, failOnDataLoss="false", **EARLIEST)
    assert planned(tolerant, start, tolerant.latest(start, None)) == [("t0", 0, 3, 9)]


def test_what_a_limit_left_for_later_is_missed_when_its_topic_is_deleted() -> None:
    held = broker(4)
    query = run(held, **EARLIEST)
    start = query.latest(query.initial(), None)
    held.held["t0"].queues[0].high = 6
    create(held, "t1", 5)
    end = query.latest(start, 1)
    assert set(end.queues) == {queue("t0", 0), queue("t1", 0)}
    assert planned(query, start, end) == [("t0", 0, 4, 5)]
    for topic in ("t0", "t1"):
        left = broker(6) if topic == "t1" else broker(5, topic="t1")
        with pytest.raises(InvalidRequest, match=f"topic {topic} no longer exists"):
            run(left, **EARLIEST).latest(end, None)


def test_a_batch_run_again_reads_nothing_of_a_topic_made_again() -> None:
    held = broker(6)
    query = run(held, **EARLIEST)
    start = query.initial()
    end = query.latest(start, None)
    create(held, "t0", 8)
    tolerant = run(held, failOnDataLoss="false", **EARLIEST)
    assert planned(tolerant, start, end) == []
    assert planned(tolerant, end, tolerant.latest(end, None)) == [("t0", 0, 0, 8)]


def test_a_batch_run_again_reads_nothing_of_an_older_store() -> None:
    held = broker(6)
    query = run(held, **EARLIEST)
    start = query.initial()
    end = query.latest(start, None)
    held.epoch_now -= 1
    tolerant = run(held, failOnDataLoss="false", **EARLIEST)
    assert planned(tolerant, start, end) == []
    assert planned(tolerant, end, tolerant.latest(end, None)) == [("t0", 0, 0, 6)]


def test_a_batch_run_again_misses_a_new_queue_that_has_gone() -> None:
    held = broker(6)
    query = run(held, **EARLIEST)
    start = query.latest(query.initial(), None)
    create(held, "t1", 5)
    end = query.latest(start, None)
    del held.held["t1"]
    with pytest.raises(InvalidRequest, match="topic t1 no longer exists"):
        run(held, **EARLIEST).slices(start, end)


@pytest.mark.parametrize("what", ["older store", "topic made again"])
def test_a_batch_run_again_misses_a_queue_that_was_begun_anew_and_has_gone(what: str) -> None:
    held = broker(6, 6)
    query = run(held, failOnDataLoss="false", **EARLIEST)
    start = query.latest(query.initial(), None)
    if what == "older store":
        held.epoch_now -= 1
    else:
        create(held, "t0", 6, 6)
    end = query.latest(start, None)
    held.held["t0"].queues[1].hidden = True
    with pytest.raises(InvalidRequest, match="queue 1: the queue no longer exists") as lost:
        run(held, **EARLIEST).slices(start, end)
    assert "queue 0: the queue no longer exists" not in lost.value.detail


def test_positions_of_a_topics_earlier_life_are_not_carried_along() -> None:
    held = broker(6, 6)
    whole = run(held, **EARLIEST)
    start = whole.latest(whole.initial(), None)
    create(held, "t0", 8, 8)
    one = QueryRun(
        parse_read({"path": "/a", "assign": '{"t0":[0]}', "failOnDataLoss": "false"}, streaming=True), held
    )
    middle = one.latest(start, None)
    again = run(held, **EARLIEST)
    assert planned(again, middle, again.latest(middle, None)) == [("t0", 1, 0, 8)]


def test_the_backlog_is_the_ends_of_the_queues_as_last_seen() -> None:
    held = broker(4, 7)
    query = run(held, **EARLIEST)
    assert query.backlog() is None
    query.latest(query.initial(), 2)
    seen = query.backlog()
    assert seen is not None
    assert seen["topics"]["t0"]["brokers"]["broker-a"] == {"0": 4, "1": 7}


def test_without_being_asked_where_to_begin_a_batch_begins_where_the_last_one_ended() -> None:
    held = broker(4)
    query = run(held, maxOffsetsPerTrigger="2", **EARLIEST)
    first = query.latest_unasked()
    assert first.position(queue("t0", 0)) == 4
    held.held["t0"].queues[0].high = 9
    assert query.latest_unasked().position(queue("t0", 0)) == 6
