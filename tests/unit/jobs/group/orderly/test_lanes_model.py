"""The lanes of a group against a small model: any verdicts, retries that come back late, kills.

Contract: a message is handled only when every earlier one of its lane is done; each message has one final
outcome, DEAD where an operator gave it up; what the driver knows after a batch is what the ledger says.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from delta_tables.deliveries import ACK, DEAD, PARKED, RETRY
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneGate, LaneRules
from jobs.group.orderly.waiting import LaneRow, WaitingLanes
from jobs.group.skips.skipped_rows import beside_skipped
from jobs.handler.call_order import CallOrder, Turns
from jobs.handler.results import with_outcomes
from jobs.handler.verdicts import Outcome

FINAL = (ACK, DEAD)


class Group:
    """A group's ledger, retry topic and driver; what a handler says is drawn."""

    def __init__(
        self,
        messages: list[int],
        draw: random.Random,
        failing: float,
        most_attempts: int,
        skipped: frozenset[int],
    ) -> None:
        self.log = [(Lane("t", "b", 0, f"k{key}"), Attempt(offset, 1)) for offset, key in enumerate(messages)]
        self.draw = draw
        self.failing = failing
        self.most_attempts = most_attempts
        self.skipped = skipped
        self.read = 0
        self.ledger: list[LaneRow] = []
        self.retry_topic: list[tuple[Lane, Attempt]] = []
        self.waiting = WaitingLanes()

    def rebuilt(self) -> WaitingLanes:
        """What a driver reads at its start, as the views say it."""
        made = {row.attempt for row in self.ledger if row.verdict != PARKED}
        seen = {row.attempt for row in self.ledger}
        waiting = WaitingLanes()
        waiting.add(
            row
            for row in self.ledger
            if (row.verdict == PARKED and row.attempt not in made)
            or (row.verdict == RETRY and Attempt(row.attempt[0], row.attempt[1] + 1) not in seen)
        )
        return waiting

    def batch(self, new: int, returning: float, most: int) -> None:
        """One batch; the driver may be killed in the middle of it, and behind its commit."""
        arrived = [each for each in self.retry_topic if self.draw.random() < returning]
        self.draw.shuffle(arrived)
        first = self.log[self.read : self.read + new]
        while True:
            rows = self._handled(arrived, first, most)
            if self.draw.random() < 0.8:
                break
            self.waiting = self.rebuilt()  # killed: nothing of it was committed
        self.ledger += rows
        self.read += len(first)
        self.retry_topic = [each for each in self.retry_topic if each not in arrived]
        self.retry_topic += [
            (row.lane, Attempt(row.attempt.queue_offset, row.attempt.number + 1))
            for row in rows
            if row.verdict == RETRY
        ]
        # Rows that are done carry no properties, so no key.
        known = [
            row if row.verdict in (RETRY, PARKED) else replace(row, lane=row.lane._replace(sharding_key=None))
            for row in rows
        ]
        self.draw.shuffle(known)
        self.waiting.add(known)
        assert vars(self.waiting) == vars(self.rebuilt())
        if self.draw.random() < 0.2:
            self.waiting = self.rebuilt()  # killed behind the commit

    def _handled(
        self, arrived: list[tuple[Lane, Attempt]], first: list[tuple[Lane, Attempt]], most: int
    ) -> list[LaneRow]:
        release = self.waiting.release(set(arrived), most)
        parked = [(lane, attempt) for lane, of in release.parked.items() for attempt in of]
        assert len(parked) <= most
        gate = LaneGate(LaneRules(release.before, frozenset(parked)))
        again = sorted([*arrived, *parked], key=lambda row: row[1])
        found: list[LaneRow] = []
        left = [*again, *first]
        while left:
            piece = left[: self.draw.randint(1, 5)]
            left = left[len(piece) :]
            verdicts = self._called(piece, gate)
            kept = gate.close_behind(piece, verdicts).to_pylist()
            rows = map(LaneRow, *zip(*piece, strict=True), verdicts)
            found += [row for row, keep in zip(rows, kept, strict=True) if keep]
        return found

    def _called(self, piece: list[tuple[Lane, Attempt]], gate: LaneGate) -> list[str]:
        last = [at for at, (_, attempt) in enumerate(piece) if attempt.number >= self.most_attempts]
        lanes = gate.order(piece, last)
        skipped = {at: "" for at, (_, attempt) in enumerate(piece) if attempt.queue_offset in self.skipped}
        called = [at for at in range(len(piece)) if at not in skipped]
        order = lanes.only(called)
        turns = Turns(order)
        outcomes: dict[int, Outcome | None] = {}
        under_way: list[int] = []
        while True:
            while len(under_way) < 3 and (row := turns.take()) is not None:
                assert piece[row][0] not in {piece[other][0] for other in under_way}, "two calls on a lane"
                under_way.append(row)
            if not under_way:
                break
            row = under_way.pop(self.draw.randrange(len(under_way)))
            outcomes[row] = Outcome(RETRY) if self.draw.random() < self.failing else None
            turns.end(row, outcomes[row])
        assert not order.left(outcomes).lanes
        made = {place: outcomes.get(at, Outcome(PARKED)) for place, at in enumerate(called)}
        others = {place: outcome for place, outcome in made.items() if outcome is not None}
        times = [0] * len(called)
        results = beside_skipped(with_outcomes(len(called), times, times, others), called, skipped, lanes)
        verdicts = [ACK] * len(piece) if results.verdict is None else results.verdict.to_pylist()
        return [DEAD if said == RETRY and at in last else said for at, said in enumerate(verdicts)]


@given(
    messages=st.lists(st.integers(0, 3), max_size=25),
    seed=st.integers(0, 2**32),
    failing=st.sampled_from([0.0, 0.2, 0.6, 0.95]),
    most_attempts=st.sampled_from([1, 2, 4, 30]),
    new=st.integers(1, 8),
    most=st.integers(1, 6),
    skipped=st.frozensets(st.integers(0, 24), max_size=6),
)
def test_order_holds_and_each_message_is_done_once(
    messages: list[int],
    seed: int,
    failing: float,
    most_attempts: int,
    new: int,
    most: int,
    skipped: frozenset[int],
) -> None:
    group = Group(messages, random.Random(seed), failing, most_attempts, skipped)
    batches = 0
    while group.read < len(group.log) or group.retry_topic or group.waiting.can_go_on:
        group.batch(new, 0.5 if batches < 200 else 1.0, most)
        batches += 1
        assert batches < 3_000
    assert not group.waiting, "something waits for ever"

    done: dict[Lane, list[int]] = defaultdict(list)
    made: set[Attempt] = set()
    for row in group.ledger:
        if row.verdict == PARKED:
            continue
        assert row.attempt not in made, "an attempt was made twice"
        made.add(row.attempt)
        before = [a.queue_offset for lane, a in group.log if lane == row.lane and a < (row.attempt[0], 1)]
        assert done[row.lane] == before, f"{row} came before its turn"
        if row.attempt.queue_offset in skipped:
            assert row.verdict == DEAD, "it is given up at its first attempt"
        if row.verdict in FINAL:
            done[row.lane].append(row.attempt.queue_offset)
    assert sorted(offset for offsets in done.values() for offset in offsets) == list(range(len(messages)))
    parked = [row.attempt for row in group.ledger if row.verdict == PARKED]
    assert len(parked) == len(set(parked)), "parked twice"


def test_a_replayed_message_takes_its_place_on_the_lane() -> None:
    """It is older than what waits: it goes first; one that is younger waits for the older."""
    lane = Lane("t", "b", 0, None)
    waiting = WaitingLanes()
    waiting.add([LaneRow(lane, Attempt(5, 1), RETRY), LaneRow(lane, Attempt(6, 1), PARKED)])
    for offset, goes in ((3, True), (9, False)):
        replayed = (lane, Attempt(offset, 4))
        release = waiting.release({replayed}, 10)
        assert release.parked == {}
        order = LaneGate(LaneRules(release.before)).order([replayed])
        assert bool(order.lanes) is goes


def test_a_head_that_was_expected_and_could_not_be_read_holds_its_lane() -> None:
    lane = Lane("t", "b", 0, "k")
    waiting = WaitingLanes()
    waiting.add([LaneRow(lane, Attempt(0, 1), RETRY), LaneRow(lane, Attempt(1, 1), PARKED)])
    release = waiting.release({(lane, Attempt(0, 2))}, 10)
    assert release.parked == {lane: [Attempt(1, 1)]}
    gate = LaneGate(LaneRules(release.before, frozenset({(lane, Attempt(1, 1))})))
    assert not gate.order([(lane, Attempt(1, 1)), (lane, Attempt(2, 1))]).lanes
    kept = gate.close_behind([(lane, Attempt(1, 1)), (lane, Attempt(2, 1))], [PARKED, PARKED])
    assert kept.to_pylist() == [False, True]


def test_lanes_that_had_least_go_first() -> None:
    waiting = WaitingLanes()
    lanes = [Lane("t", "b", 0, f"k{n}") for n in range(3)]
    for at, lane in enumerate(lanes):
        waiting.add(LaneRow(lane, Attempt(10 * at + n, 1), PARKED) for n in range(4))
    had = [set(waiting.release((), 1).parked) for _ in lanes]
    assert set.union(*had) == set(lanes)
    assert all(len(of) == 1 for of in had)


def test_a_queue_is_consumed_to_its_first_parked_message_that_was_never_handled() -> None:
    waiting = WaitingLanes()
    lanes = [Lane("t", "b", queue, key) for queue, key in ((0, "k"), (0, "l"), (1, None))]
    waiting.add(LaneRow(lane, Attempt(at, 1), PARKED) for lane, at in zip(lanes, (7, 5, 9), strict=True))
    waiting.add([LaneRow(lanes[0], Attempt(2, 3), PARKED)])  # a dead letter that was replayed
    assert waiting.first_parked() == {("t", "b", 0): 5, ("t", "b", 1): 9}
    assert waiting.add([LaneRow(lanes[1], Attempt(5, 1), ACK), LaneRow(lanes[1], Attempt(8, 1), ACK)]) == 1
    assert waiting.first_parked() == {("t", "b", 0): 7, ("t", "b", 1): 9}


def test_calls_wait_for_those_before_them_on_their_lane() -> None:
    order = CallOrder(((0, 2), (1,)))
    turns = Turns(order)
    assert (turns.take(), turns.take(), turns.take()) == (0, 1, None)
    turns.end(0, Outcome(RETRY))
    assert turns.take() is None
    assert order.left({0: Outcome(RETRY), 1: None}).lanes == ()
    assert CallOrder(((0, 2),), frozenset({0})).left({0: Outcome(RETRY)}).lanes == ((2,),)
