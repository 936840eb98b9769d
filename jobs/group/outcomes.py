"""From messages to rows of `deliveries`: what the group job runs on executors.

Owns which messages of a task the handler is called for, and in which order.

Invariants: one row per message, keyed by its original position and attempt. The handler is not called for a
message that an operator gave up: it is DEAD. In an orderly group a message behind one that comes again is
PARKED, by the same commit. What is put off when a task takes too long is RETRY, an attempt that does not
count; PARKED in an orderly group. So is what a task does not wait for: the row of a later attempt says what
its call came to.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import DEAD, DROPPED, PARKED, RETRY
from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.group.batch_size import Handled
from jobs.group.carried import CARRIES_NOTHING, Carriers
from jobs.group.handled_messages import as_handled, without_repeats
from jobs.group.long_calls import LongCalls
from jobs.group.orderly.lane import Lane, lanes_of
from jobs.group.orderly.lane_gate import LaneGate, LaneRules
from jobs.group.outcome_rows import OutcomeRows
from jobs.group.skips.skipped_rows import NO_SKIPS, Skips, beside_skipped
from jobs.group.task_attempt import of_this_task
from jobs.group.task_part import TaskPart, died_without_a_call
from jobs.group.task_pieces import joined, small
from jobs.handler.batch_calls import Before
from jobs.handler.call_order import CallOrder
from jobs.handler.deadline import NEVER, Deadline
from jobs.handler.invocation import DEFAULT_HOST, HandlerHost, invoke
from jobs.handler.loader import HandlerTarget
from jobs.handler.long_call import Leave
from jobs.handler.results import CallMade, HandlerResults, by_rows, of_calls
from jobs.handler.verdicts import CONSUME_TIMEOUT, PUT_OFF, WORKER_DIED
from jobs.redelivery.counted_attempts import AttemptCounts, attempt_counts
from jobs.redelivery.original_position import LAST_ATTEMPT, Positions, original_positions
from jobs.redelivery.property_limit import leaves_space_for_retry
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from jobs.tracing.call_spans import NOT_TRACED, TracedBatch


def _not_counted(piece: Handled) -> None:
    """Nobody asked."""


@dataclass(frozen=True)
class OutcomeTask:
    """The function of one batch, as it travels to the executors.

    Attributes:
        handler: the user's handler, or verdicts that are decided already.
        host: where and how the handler is called.
        handled: gets what was handled, piece by piece.
        may_carry: the messages and rows that verdicts may carry.
        lanes: what is known of the lanes, in orderly mode.
        skips: messages that an operator gave up.
        traced: what the spans of the calls say of the batch.
        part: the messages of a task that are handled; None: all.
        limit_s: seconds from a task's first call in which calls are begun; None: any. Not for parts, and not
            in broadcast mode, where nothing comes again.
        long_calls: the calls that went on when their tasks had ended; None: each is waited for.
        attempt_number: says how often Spark has started the task before.
        clock: seconds that never go back, for `limit_s` and the time that is reported.
    """

    group: str
    handler: HandlerTarget | DecidedVerdicts
    policy: RetryPolicy
    mode: Mode
    query_id: str
    batch_id: int
    host: HandlerHost = DEFAULT_HOST
    handled: Callable[[Handled], None] = _not_counted
    may_carry: Carriers = CARRIES_NOTHING
    lanes: LaneRules | None = None
    skips: Skips = NO_SKIPS
    traced: TracedBatch = NOT_TRACED
    part: TaskPart | None = None
    limit_s: float | None = None
    long_calls: LongCalls | None = None
    attempt_number: Callable[[], int] = of_this_task
    clock: Callable[[], float] = time.monotonic

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handles the messages of one task and yields their outcome rows.

        A task that Spark starts again, as it does when a worker died under the handler, calls it in a process
        of its own: in the worker the same call would end or hold it as often as Spark tries.
        """
        if self.host.isolation == "thread" and self.attempt_number() > 0:
            yield from replace(self, host=replace(self.host, isolation="process"))(batches)
            return
        rows_of = OutcomeRows(
            self.group, self.policy, self.mode, self.query_id, self.batch_id, self.may_carry
        )
        seen: set[tuple[str, int]] = set()
        gate = None if self.lanes is None else LaneGate(self.lanes)
        unlimited = self.part is not None or self.mode == "broadcast"
        deadline = Deadline(None if unlimited else self.limit_s, self.clock)
        for batch in self._pieces(batches):
            fresh = without_repeats(batch, self.group, seen)
            if self.part is not None:
                fresh = self.part.of(fresh, self.group, gate)
            if fresh.num_rows == 0:
                continue
            positions = original_positions(fresh, self.group)
            counts = attempt_counts(fresh, positions, self.group)
            skipped = self.skips.among(positions)
            began = self.clock()
            if gate is None:
                results = self._results(fresh, positions, counts, skipped, deadline)
                rows = rows_of(fresh, positions, counts, results)
                given_up = len(skipped)
            else:
                lanes = lanes_of(fresh, positions)
                last = pc.indices_nonzero(self._last_chances(fresh, positions, counts)).to_pylist()
                order = gate.order(lanes, last)
                results = self._results(fresh, positions, counts, skipped, deadline, order)
                rows = rows_of(fresh, positions, counts, results)
                verdicts = rows.column("verdict").to_pylist()
                given_up = sum(verdicts[row] == DEAD for row in skipped)
                rows = rows.filter(gate.close_behind(lanes, verdicts))
            handled = _handled(rows, results, self.clock() - began)
            ended = _ended(results) if self.host.isolation == "process" else 0
            self.handled(handled._replace(skipped=given_up, ended=ended))
            yield rows

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if isinstance(self.handler, DecidedVerdicts):
            return batches
        handler = self.handler.load()
        concurrent = not handler.vectorised and handler.thread_safe and self.host.concurrency > 1
        pieces = joined(batches) if concurrent else batches
        return small(pieces) if self.may_carry.any else pieces

    def _results(
        self,
        batch: pa.RecordBatch,
        positions: Positions,
        counts: AttemptCounts,
        skipped: Mapping[int, str],
        deadline: Deadline,
        order: CallOrder | None = None,
    ) -> HandlerResults:
        """The results of all rows; the handler is called for those that nobody gave up."""
        if not skipped:
            return self._called(batch, positions, counts, deadline, order)
        called = [row for row in range(batch.num_rows) if row not in skipped]
        results = None
        if called:
            rows = pa.array(called, pa.int64())
            left = None if order is None else order.only(set(called)).numbered(called)
            some = batch.take(rows), positions.take(rows), counts.take(rows)
            results = self._called(*some, deadline, left)
        return beside_skipped(results, called, skipped, order)

    def _called(
        self,
        batch: pa.RecordBatch,
        positions: Positions,
        counts: AttemptCounts,
        deadline: Deadline,
        order: CallOrder | None,
    ) -> HandlerResults:
        messages = as_handled(batch, positions)
        if self.part is not None and self.part.died:
            return died_without_a_call(batch.num_rows, order)
        if isinstance(self.handler, DecidedVerdicts):
            return self.handler.of(messages)
        leave: Leave | None = None
        if self.long_calls is not None:

            @cache
            def cannot_return() -> list[bool]:
                return list(_cannot_return(batch, positions).to_pylist())

            def must_wait() -> list[bool]:
                return [True] * batch.num_rows if self.limit_s is None else cannot_return()

            @cache
            def lanes() -> list[Lane]:
                return [lane for lane, _ in lanes_of(batch, positions)]

            asked = (positions, counts.put_off, self.policy, must_wait, order, lanes)
            made, order = self.long_calls.found(*asked)
            if made:
                return self._beside(made, batch, positions, counts, deadline, order)
            of_lanes = None if order is None else lanes
            leave = self.long_calls.leaving(
                *(positions, self.policy, self.host.timeout_s, cannot_return), of_lanes
            )
        before = self._before(batch, positions, counts) if self.handler.load().vectorised else None
        call = (self.handler, messages, self.policy, before, self.host, order, self.traced, deadline, leave)
        results = invoke(*call)
        if results.put_off is None:
            return results
        stuck = pc.indices_nonzero(pc.and_(results.put_off, _cannot_return(batch, positions)))
        if len(stuck) == 0:
            return results
        some = batch.take(stuck), positions.take(stuck), counts.take(stuck)
        return results.replaced(stuck.to_pylist(), self._called(*some, NEVER, None))

    def _beside(
        self,
        made: dict[int, CallMade],
        batch: pa.RecordBatch,
        positions: Positions,
        counts: AttemptCounts,
        deadline: Deadline,
        order: CallOrder | None,
    ) -> HandlerResults:
        """The results of all rows, where what is known of the calls of some is not asked again."""
        rows = list(made)
        known = of_calls(rows, made, PUT_OFF, time.time_ns() // 1_000)
        came_to = [outcome is None or not outcome.put_off for _, _, outcome in made.values()]
        known.found = pa.array(came_to, pa.bool_())
        others = [row for row in range(batch.num_rows) if row not in made]
        if not others:
            return by_rows([(rows, known)])
        at = pa.array(others, pa.int64())
        left = None if order is None else order.numbered(others)
        results = self._called(batch.take(at), positions.take(at), counts.take(at), deadline, left)
        return by_rows([(rows, known), (others, results)])

    def _before(self, batch: pa.RecordBatch, positions: Positions, counts: AttemptCounts) -> Before:
        """What a failure would mean for each row; worked out when something fails."""

        @cache
        def last_chance() -> list[bool]:
            return list(self._last_chances(batch, positions, counts).to_pylist())

        @cache
        def cannot_return() -> list[bool]:
            return list(_cannot_return(batch, positions).to_pylist())

        again = pc.greater(counts.begun, 1).to_pylist()
        isolated = counts.isolated.to_pylist()
        if self.mode == "broadcast":  # nothing comes again: each failure is the last, and decided about now
            return Before(again, isolated, lambda row: True, lambda row: True)
        return Before(again, isolated, lambda row: last_chance()[row], lambda row: cannot_return()[row])

    def _last_chances(self, batch: pa.RecordBatch, positions: Positions, counts: AttemptCounts) -> pa.Array:
        """Of each row, whether RETRY would mean DEAD now."""
        last = pc.greater(counts.counted, self.policy.max_reconsume_times)
        return pc.or_(last, _cannot_return(batch, positions))


def _cannot_return(batch: pa.RecordBatch, positions: Positions) -> pa.Array:
    too_large = pc.invert(leaves_space_for_retry(batch, positions))
    return pc.or_(too_large, pc.equal(positions.attempt, LAST_ATTEMPT))


def _handled(rows: pa.RecordBatch, results: HandlerResults, took: float) -> Handled:
    """Counts what was handled among some rows; what was parked or put off was not."""
    found = 0 if results.found is None else results.found.true_count
    if results.verdict is None:
        return Handled(rows.num_rows, took, found=found)
    said = Counter(rows.column("verdict").to_pylist())
    parked = said[PARKED]
    put_off = 0 if results.put_off is None else results.put_off.true_count
    called = rows.num_rows - parked - put_off
    given_up = said[DEAD] + said[DROPPED]
    return Handled(called, took, said[RETRY] - put_off, given_up, parked, put_off=put_off, found=found)


def _ended(results: HandlerResults) -> int:
    """How many calls ended their process or did not return."""
    if results.error_type is None:
        return 0
    said = Counter(results.error_type.to_pylist())
    return said[WORKER_DIED] + said[CONSUME_TIMEOUT]
