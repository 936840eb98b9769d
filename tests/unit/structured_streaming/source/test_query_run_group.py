"""One run of a query: its group's lease and progress, its start, and how its batches are cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from store_native.errors import InvalidRequest, LakeMQError
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.source import batch_plan
from structured_streaming.source.query_run import QueryRun
from tests.unit.structured_streaming.model_broker import ModelBroker

Q0, Q1 = MessageQueue("t0", "broker-a", 0), MessageQueue("t0", "broker-a", 1)
EARLIEST: dict[str, Any] = {"startingOffsets": "earliest"}


class Broker(ModelBroker):
    """Topic t0, message n of which was stored at time n; counts how often it was looked at."""

    store_id = "store-7"

    def __init__(self, *ends: int) -> None:
        super().__init__()
        self.looks = 0
        self.create("t0", len(ends))
        for queue_id, end in enumerate(ends):
            self.grow(queue_id, end)

    def grow(self, queue_id: int, end: int) -> None:
        self.held["t0"].queues[queue_id].high = end

    def epoch(self) -> int:
        self.looks += 1
        return super().epoch()

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        assert topic == "t0"
        return min(timestamp, self.held[topic].queues[queue_id].high)


@dataclass
class Lease:
    """A group's lease as a run uses it, held already."""

    epoch: int = 3
    lost: LakeMQError | None = None
    checked: int = 0
    released: int = 0

    def check(self) -> int:
        self.checked += 1
        if self.lost is not None:
            raise self.lost
        return self.epoch

    def renew(self) -> int:
        self.epoch += 1
        return self.epoch

    def release(self) -> None:
        self.released += 1


@dataclass
class Progress:
    """What a group's broker is told, and how it answers."""

    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    refusals: list[LakeMQError] = field(default_factory=list)
    told: list[tuple[Offsets, int | None]] = field(default_factory=list)

    def committed_offsets(self) -> dict[tuple[str, int], int]:
        return self.committed

    def report(self, done: Offsets, lease_epoch: int | None) -> None:
        self.told.append((done, lease_epoch))
        if self.refusals:
            raise self.refusals.pop(0)


def run(
    held: ModelBroker, progress: Progress | None = None, lease: Lease | None = None, **given: Any
) -> QueryRun:
    chosen = parse_read(
        {"path": "/a", "endpoint": "http://h", "group": "g", "subscribe": "t0"} | given, streaming=True
    )
    return QueryRun(chosen, held, cast(Any, progress), cast(Any, lease))


def refusal(**context: Any) -> InvalidRequest:
    return InvalidRequest("LEASE_CONFLICT", "another query has the group", **context)


STEPS: dict[str, Callable[[QueryRun, Offsets], object]] = {
    "freeze": lambda query, _: query.freeze(),
    "initial": lambda query, _: query.initial(),
    "latest": lambda query, start: query.latest(start, None),
    "latest_unasked": lambda query, _: query.latest_unasked(),
    "slices": lambda query, start: query.slices(start, start),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_query_that_lost_its_group_plans_nothing_more(step: str) -> None:
    held = Broker(4)
    start = run(held, **EARLIEST).initial()
    lease, looks = Lease(lost=refusal()), held.looks
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        STEPS[step](run(held, None, lease, **EARLIEST), start)
    assert held.looks == looks


@pytest.mark.parametrize("step", STEPS)
def test_a_query_without_a_lease_asks_for_none(step: str) -> None:
    held = Broker(4)
    start = run(held, **EARLIEST).initial()
    STEPS[step](run(held, **EARLIEST), start)


def test_a_lease_is_given_back_at_the_end_of_the_run() -> None:
    lease = Lease()
    query = run(Broker(4), None, lease)
    assert lease.released == 0
    query.close()
    assert lease.released == 1
    run(Broker(4)).close()


def test_what_a_batch_began_behind_is_reported_with_the_lease_but_not_the_start_of_a_new_query() -> None:
    held, progress, lease = Broker(4), Progress(), Lease()
    query = run(held, progress, lease, **EARLIEST)
    start = query.initial()
    first = query.latest(start, None)
    assert progress.told == [], "nothing is done yet"
    assert query.latest(first, None) == first
    held.grow(0, 9)
    second = query.latest(first, None)
    query.latest(second, None)
    assert progress.told == [(first, 3), (first, 3), (second, 3)]


def test_a_run_that_goes_on_reports_what_the_checkpoint_says_at_once() -> None:
    held, progress = Broker(4), Progress()
    start = run(held, **EARLIEST).initial()
    query = run(held, progress, **EARLIEST)
    query.latest(start, None)
    assert progress.told == [(start, None)]
    query = run(held, progress)
    later = query.initial()
    assert later != start
    query.latest(start, None)
    assert progress.told == [(start, None)] * 2


def test_a_broker_that_forgot_the_lease_is_told_again_after_a_renewal() -> None:
    progress, lease = Progress(refusals=[refusal(renew=True)]), Lease()
    run(Broker(4), progress, lease).done(Offsets(1))
    assert progress.told == [(Offsets(1), 3), (Offsets(1), 4)]
    progress = Progress(refusals=[refusal(renew=True), refusal(renew=True)])
    with pytest.raises(InvalidRequest):
        run(Broker(4), progress, Lease()).done(Offsets(1))


@pytest.mark.parametrize(("lease", "context"), [(Lease(), {}), (None, {"renew": True}), (None, {})])
def test_a_report_refused_for_good_fails_the_query(lease: Lease | None, context: dict[str, bool]) -> None:
    progress = Progress(refusals=[refusal(**context)])
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        run(Broker(4), progress, lease).done(Offsets(1))
    assert len(progress.told) == 1


def test_a_query_starts_where_its_group_stands_or_where_a_time_says() -> None:
    group: dict[str, Any] = {"startingOffsets": "group", "groupInitialOffsets": "earliest"}
    held = Broker(9, 9)
    assert run(held, Progress({("t0", 0): 5, ("t0", 1): 9}), **group).initial().queues == {Q0: 5, Q1: 9}
    assert run(held, None, **group).initial().queues == {Q0: 0, Q1: 0}
    assert run(held, startingTimestamp="7").initial().queues == {Q0: 7, Q1: 7}


def test_the_start_is_looked_up_once() -> None:
    held = Broker(9)
    query = run(held)
    first = query.initial()
    held.grow(0, 12)
    assert query.initial() is first
    assert held.looks == 1


def test_a_start_that_cannot_be_names_its_option() -> None:
    with pytest.raises(InvalidRequest, match="startingOffsets") as refused:
        run(Broker(4), startingOffsets='{"t0":{"0":5}}').initial()
    assert refused.value.context["option"] == "startingOffsets"


@pytest.mark.parametrize("step", ["initial", "latest_unasked"])
def test_a_new_query_over_a_topic_that_does_not_exist_is_refused(step: str) -> None:
    with pytest.raises(LakeMQError, match="TOPIC_NOT_EXIST"):
        STEPS[step](run(Broker(4), subscribe="t9", **EARLIEST), Offsets(1))


def test_only_queues_that_start_at_their_end_wait_for_the_second_batch() -> None:
    held = Broker(4, 4)
    query = run(held, startingOffsets='{"t0":{"0":4,"1":2}}')
    start = query.initial()
    held.grow(0, 7)
    held.grow(1, 7)
    first = query.latest(start, None)
    assert first.queues == {Q0: 4, Q1: 7}
    assert query.latest(first, None).queues == {Q0: 7, Q1: 7}


def test_a_start_at_the_end_is_gone_on_from_when_nothing_came_at_first() -> None:
    held = Broker(4)
    query = run(held)
    start = query.initial()
    assert query.latest(start, None) == start
    held.grow(0, 6)
    assert query.latest(start, None).queues == {Q0: 6}


def test_what_is_available_is_what_was_there_however_much_came_since() -> None:
    held = Broker(4, 4)
    query = run(held, subscribePattern="t.", subscribe="", **EARLIEST)
    query.freeze()
    held.grow(0, 9)
    held.held["t0"].queues[2] = held.held["t0"].queues[1]
    end = query.latest(query.initial(), None)
    assert {queue.queue_id: offset for queue, offset in end.queues.items() if offset} == {0: 4, 1: 4}
    # A run that goes on behind these ends does not go back to them.
    beyond = run(held, **EARLIEST)
    ahead = beyond.latest(beyond.initial(), None)
    assert query.latest(ahead, None) == ahead


def test_a_queue_that_has_gone_is_carried_no_further() -> None:
    held = Broker(4, 4)
    query = run(held, failOnDataLoss="false", **EARLIEST)
    end = query.latest(query.initial(), None)
    held.held["t0"].queues[1].hidden = True
    assert query.latest(end, None).queues == {Q0: 4}


def test_a_batch_planned_a_moment_ago_is_cut_without_looking_again() -> None:
    held = Broker(4)
    query = run(held, **EARLIEST)
    start = query.initial()
    end = query.latest(start, None)
    looks = held.looks
    assert [(p.start, p.end, p.store_id) for p in query.slices(start, end)] == [(0, 4, "store-7")]
    assert held.looks == looks
    held.grow(0, 9)
    following = query.latest(end, None)
    held.held["t0"].queues[0].low = 2
    with pytest.raises(InvalidRequest, match=r"offsets \[0, 2\) expired"):
        query.slices(start, end)
    assert [(p.start, p.end) for p in query.slices(end, following)] == [(4, 9)]


def test_a_batch_is_cut_as_the_options_say() -> None:
    def parts(**given: Any) -> list[tuple[int, int]]:
        query = run(Broker(8), **EARLIEST, **given)
        start = query.initial()
        return [(piece.start, piece.end) for piece in query.slices(start, query.latest(start, None))]

    assert parts() == [(0, 8)]
    assert parts(minPartitions="2") == [(0, 4), (4, 8)]
    assert parts(maxRecordsPerPartition="3") == [(0, 2), (2, 5), (5, 8)]


def test_begin_and_end_of_a_batch_are_written_where_the_job_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    query = run(Broker(4), planFile=str(file), **EARLIEST)
    start = query.initial()
    end = query.latest(start, None)
    assert not file.exists()
    query.slices(start, end)
    assert batch_plan.take(file) == batch_plan.Plan(ClusterOffsets.of(start), ClusterOffsets.of(end))


def test_without_being_asked_a_query_takes_what_there_is_and_goes_on_from_there_within_its_limit() -> None:
    held, progress, lease = Broker(4, 0), Progress(), Lease()
    query = run(held, progress, lease, maxOffsetsPerTrigger="3")
    first = query.latest_unasked()
    assert first.queues == {Q0: 4, Q1: 0}
    assert query.backlog() == first.to_json()
    held.grow(0, 9)
    second = query.latest_unasked()
    assert sum(second.queues.values()) == 7
    assert progress.told == [(first, 3)]
    backlog = query.backlog()
    assert backlog is not None
    assert backlog["topics"]["t0"]["brokers"]["broker-a"] == {"0": 9, "1": 0}
