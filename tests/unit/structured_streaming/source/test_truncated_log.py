"""A slave that was behind is promoted at any moment of a query: no offset is taken for another epoch's.

Contract: a query past the common point says "truncated log" with queue and range, and goes on at the later
epoch's messages where it may; a batch that is read while the slave is promoted ends at the common point; of
who answers with a log of an earlier epoch nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.offsets import Bounds, EpochOffset, Offsets, TopicMetadata, not_behind
from structured_streaming.options import parse_read
from structured_streaming.readers import Chunk
from structured_streaming.source.data_loss import Loss
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.query_run import QueryRun
from structured_streaming.source.slice_reader import SliceReader
from tests.unit.structured_streaming.cluster_query import A0, Broker, Query, at

SCHEMA = StructType([StructField("queue_offset", LongType())])


def run(broker: Broker, **given: str) -> QueryRun:
    options = {"path": "/a", "subscribe": "t0", "startingOffsets": "earliest", **given}
    return QueryRun(parse_read(options, streaming=True), broker)


def reader(*, fail: bool, lost: list[Loss] | None = None) -> SliceReader:
    on_loss = None if lost is None else lost.extend
    return SliceReader(None, None, SCHEMA, "*", fail, on_loss, retry_timeout_s=0.0)


def offsets_of(read: Any) -> list[int]:
    return [offset for batch in read for offset in batch.column("queue_offset").to_pylist()]


def test_a_query_past_the_common_point_goes_on_there_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("broker-a", 10)
    done = run(broker).latest(run(broker).initial(), None)
    broker.promote_by_force({("t0", 0): 6})
    broker.grow(15)
    with pytest.raises(InvalidRequest, match=r"broker broker-a, queue 0: truncated log: offsets \[6, 10\)"):
        run(broker).latest(done, None)
    going = run(broker, failOnDataLoss="false")
    end = going.latest(done, None)
    assert (end.epoch, end.queues) == (6, {A0: 15})
    for planned in (going, run(broker, failOnDataLoss="false")):
        assert [(p.start, p.end) for p in planned.slices(done, end)] == [(6, 15)]
    caplog.clear()
    assert going.latest(end, None) == end == run(broker).latest(end, None)
    assert not caplog.records


def test_a_query_before_the_common_point_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker("broker-a", 10)
    done = run(broker).latest(run(broker).initial(), 6)
    broker.promote_by_force({("t0", 0): 6})
    broker.grow(15)
    going = run(broker)
    assert [(p.start, p.end) for p in going.slices(done, going.latest(done, None))] == [(6, 15)]
    assert not caplog.records


def test_a_planned_batch_is_read_up_to_the_common_point() -> None:
    broker = Broker("broker-a", 10)
    start = run(broker).latest(run(broker).initial(), 3)
    planned = run(broker).latest(start, None)
    broker.promote_by_force({("t0", 0): 6})
    broker.grow(15)
    with pytest.raises(InvalidRequest, match=r"truncated log: offsets \[6, 10\)"):
        run(broker).slices(start, planned)
    going = run(broker, failOnDataLoss="false")
    assert [(p.start, p.end) for p in going.slices(start, planned)] == [(3, 6)]
    following = going.latest(planned, None)
    assert [(p.start, p.end) for p in going.slices(planned, following)] == [(6, 15)]


def promoted_with_a_queue_left_out(common: int) -> tuple[Broker, Offsets]:
    """A promotion behind a query's position of ten messages of each topic; of t1 both logs have so many."""
    broker = Broker("broker-a", 10)
    broker.create("t1", 1)
    broker.grow(10, "t1")
    both = run(broker, subscribe="t0,t1")
    done = both.latest(both.initial(), None)
    broker.promote_by_force({("t0", 0): 10, ("t1", 0): common})
    return broker, done


def test_queues_that_the_query_has_no_more_are_carried_along_no_further_than_the_common_point(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, done = promoted_with_a_queue_left_out(common=4)
    broker.grow(15, "t1")
    with pytest.raises(InvalidRequest, match=r"t1.* truncated log: offsets \[4, 10\).* as other messages'"):
        run(broker, failOnReusedOffsets="true").latest(done, None)
    fewer = run(broker).latest(done, None)
    assert {queue.topic: position for queue, position in fewer.queues.items()} == {"t0": 10, "t1": 4}
    assert "topic t1, broker broker-a, queue 0: truncated log: offsets [4, 10)" in caplog.text
    again = run(broker, subscribe="t0,t1")
    assert [(p.start, p.end) for p in again.slices(fewer, again.latest(fewer, None))] == [(4, 15)]


def test_what_such_a_queue_may_have_lost_where_retention_has_taken_the_common_point_ends_no_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, done = promoted_with_a_queue_left_out(common=10)
    broker.grow(12)
    broker.grow(12, "t1")
    broker.held["t1"].queues[0].low = 12
    broker.held["t1"].queues[0].forget()
    keeps = {"failOnDataLoss": "false", "failOnReusedOffsets": "true"}
    end = run(broker, **keeps).latest(done, None)
    assert end.queues[A0] == 12
    assert "retention has taken where" in caplog.text


def test_a_query_that_keeps_positions_ends_wherever_it_meets_a_truncated_log() -> None:
    broker = Broker("broker-a", 10)
    keeps = {"failOnDataLoss": "false", "failOnReusedOffsets": "true"}
    start = run(broker).latest(run(broker).initial(), 3)
    planned = run(broker).latest(start, None)
    (piece,) = run(broker).slices(start, planned)
    broker.promote_by_force({("t0", 0): 6})
    broker.grow(15)
    of_reused = r"truncated log: offsets \[6, 10\).* as other messages'"
    for use in (
        lambda: run(broker, **keeps).slices(start, planned),
        lambda: run(broker, **keeps).latest(planned, None),
        lambda: offsets_of(keeping_reader().read_from(broker, piece)),
    ):
        with pytest.raises(InvalidRequest, match=of_reused):
            use()
    assert offsets_of(reader(fail=False).read_from(broker, piece)) == [3, 4, 5]


def keeping_reader() -> SliceReader:
    given = {"path": "/a", "subscribe": "t0", "failOnDataLoss": "false", "failOnReusedOffsets": "true"}
    return SliceReader.of(parse_read(given, streaming=True), SCHEMA)


def of_before_the_mark(position: Offsets) -> Offsets:
    """The position as a release had it in its checkpoint that read the store by its path."""
    said = {**position.to_json(), "epoch": 1}
    said.pop("epoch_of", None)
    return Offsets.from_json(said)


def test_a_position_that_a_path_gave_before_epochs_were_read_is_told_of_no_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("broker-a", 6)
    broker.put_back(1)
    broker.promote_by_force({})
    broker.grow(10)
    before = of_before_the_mark(run(broker).latest(run(broker).initial(), None))
    going = run(broker)
    noted = going.latest(before, None)
    assert noted.to_json()["epoch"] == 2, "the first trigger notes it"
    assert (noted.queues, going.slices(before, noted)) == ({A0: 10}, [])
    assert "queue 0 is at 10, and offsets from 6 on are of later epochs" in caplog.text
    caplog.clear()
    broker.grow(12)
    planned = of_before_the_mark(run(broker).latest(noted, None))
    assert [(p.start, p.end) for p in run(broker).slices(before, planned)] == [(10, 12)]
    broker.promote_by_force({("t0", 0): 8})
    with pytest.raises(InvalidRequest, match=r"truncated log: offsets \[8, 10\)"):
        run(broker).latest(noted, None)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_batch_behind_such_a_position_is_the_same_after_a_promotion_that_lost_nothing(epoch: int) -> None:
    broker = Broker("broker-a", 12)
    broker.put_back(epoch)
    before = of_before_the_mark(run(broker).latest(run(broker).initial(), None))
    broker.grow(16)
    end = run(broker).latest(before, None)
    assert end.epoch == epoch
    broker.promote_by_force({})
    assert [(p.start, p.end) for p in run(broker).slices(before, end)] == [(12, 16)]


def test_of_an_endpoint_the_first_epoch_is_an_epoch() -> None:
    broker = Broker("broker-a", 10)
    broker.put_back(1)
    before = of_before_the_mark(run(broker).latest(run(broker).initial(), None))
    broker.promote_by_force({("t0", 0): 6})
    broker.grow(15)
    asked = QueryRun(parse_read({"endpoint": "http://a", "subscribe": "t0"}, streaming=True), broker)
    with pytest.raises(InvalidRequest, match=r"truncated log: offsets \[6, 10\)"):
        asked.latest(before, None)


def test_a_batch_behind_a_common_point_that_has_expired_reads_nothing_and_is_said() -> None:
    broker = Broker("broker-a", 10)
    start = run(broker).latest(run(broker).initial(), 3)
    planned = run(broker).latest(start, 4)
    broker.promote_by_force({("t0", 0): 5})
    broker.grow(15)
    queue = broker.held["t0"].queues[0]
    queue.low = 9
    queue.forget()
    said = r"truncated log: the query had come to 7 in epoch 5; .* from offset 9 on, or from before"
    with pytest.raises(InvalidRequest, match=said):
        offsets_of(reader(fail=True).read_from(broker, QueueSlice(A0, 3, 7, epoch=5)))
    with pytest.raises(InvalidRequest, match=r"truncated log: the query had come to . in epoch 5"):
        run(broker).slices(start, planned)
    going = run(broker, failOnDataLoss="false")
    assert going.slices(start, planned) == []
    following = going.latest(planned, None)
    assert [(p.start, p.end) for p in going.slices(planned, following)] == [(9, 15)]


def test_of_a_slave_that_cannot_say_where_an_epoch_began_nothing_is_planned() -> None:
    """Its master may say it: only where that does not know it either is the position in doubt."""
    position = Offsets(1, {"t0": "x"}, {A0: 5})
    held = Bounds(5, 9, (EpochOffset(1, 0), EpochOffset(65, 5, at_or_before=True)))
    for from_slave in (True, False):
        metadata = TopicMetadata(65, {"t0": "x"}, {A0: held}, from_slave=from_slave)
        if from_slave:
            with pytest.raises(Unavailable, match="does not say up to where"):
                not_behind(metadata, position, lambda queue: True)
        else:
            assert not_behind(metadata, position, lambda queue: True) == metadata


class PromotedMeanwhile(Broker):
    """A broker whose slave, which has six messages, takes over once a chunk was read."""

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        if offset >= 3 and not self.forced:
            self.promote_by_force({("t0", 0): 5})
            self.grow(15)
        return super().read(topic, queue_id, offset, end, columns, tags)


def test_a_batch_that_is_read_while_a_slave_is_promoted_ends_at_the_common_point() -> None:
    lost: list[Loss] = []
    piece = QueueSlice(A0, 0, 10, epoch=5)
    read = reader(fail=False, lost=lost).read_from(PromotedMeanwhile("broker-a", 10), piece)
    assert offsets_of(read) == [0, 1, 2, 3, 4]
    assert [(loss.start, loss.end, loss.reason) for loss in lost] == [(5, 10, "truncated log")]
    with pytest.raises(
        InvalidRequest, match=r"truncated log: offsets \[5, 10\) were other messages in epoch 5"
    ):
        offsets_of(reader(fail=True).read_from(PromotedMeanwhile("broker-a", 10), piece))
    short = QueueSlice(A0, 0, 5, epoch=5)
    assert offsets_of(reader(fail=True).read_from(PromotedMeanwhile("broker-a", 10), short)) == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_a_log_of_an_earlier_epoch_is_waited_for() -> None:
    broker = Broker("broker-a", 10)
    broker.promote_by_force({})
    with pytest.raises(Unavailable, match="has a log of epoch 6, not of 7"):
        offsets_of(reader(fail=True).read_from(broker, QueueSlice(A0, 0, 10, epoch=7)))


def test_of_a_slave_whose_log_ends_in_an_earlier_epoch_nothing_is_planned() -> None:
    """It may be the old master, whose end the new one lacks."""
    position = Offsets(65, {"t0": "x"}, {A0: 5})
    stale = TopicMetadata(1, {"t0": "x"}, {A0: Bounds(0, 9, (EpochOffset(1, 0),))}, from_slave=True)
    seen = not_behind(stale, position, lambda queue: True)
    assert (seen.epoch, seen.bounds) == (65, {A0: Bounds(0, 5)})
    new = A0._replace(queue_id=1)
    more = {A0: stale.bounds[A0], new: stale.bounds[A0]}
    seen = not_behind(TopicMetadata(1, {"t0": "x"}, more, from_slave=True), position, lambda queue: True)
    assert seen.bounds == {A0: Bounds(0, 5)}


def test_over_several_brokers_only_the_one_that_was_promoted_goes_back() -> None:
    a, b = Broker("broker-a", 10), Broker("broker-b", 10)
    query = Query(a, b, failOnDataLoss="false")
    done = query.run.latest(query.run.initial(), None)
    a.promote_by_force({("t0", 0): 6})
    a.grow(12)
    b.grow(11)
    for going in (query.run, query.again()):
        end = going.latest(done, None)
        assert at(end) == {"broker-a": 12, "broker-b": 11}
        pieces = [(p.queue.broker_name, p.start, p.end) for p in going.slices(done, end)]
        assert pieces == [("broker-a", 6, 12), ("broker-b", 10, 11)]
