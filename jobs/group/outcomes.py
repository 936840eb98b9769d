"""From messages to rows of `deliveries`: what the group job runs on executors.

Owns the making of an outcome row.

Invariants: one row per message, keyed by its original position and attempt; a failed attempt becomes RETRY
while attempts are left and the broker can take it back, DEAD otherwise, DROPPED in broadcast mode; what a
verdict sends and writes is in its own row. The handler is not called for a message that an operator gave up:
it is DEAD. In an orderly group a message behind one that comes again is PARKED, by the same commit. What is
put off when a task takes too long is RETRY, an attempt that does not count; PARKED in an orderly group. So is
what a task does not wait for: the row of a later attempt says what its call came to.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ACK, DEAD, DELIVERIES, DROPPED, PARKED, RETRY
from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.group.batch_size import Handled
from jobs.group.carried import CARRIES_NOTHING, Carriers, carried
from jobs.group.handled_messages import as_handled, without_repeats
from jobs.group.long_calls import LongCalls
from jobs.group.orderly.lane import Lane, lanes_of
from jobs.group.orderly.lane_gate import LaneGate, LaneRules
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
from jobs.redelivery.counted_attempts import AttemptCounts, attempt_counts, marked
from jobs.redelivery.original_position import LAST_ATTEMPT, Positions, original_positions
from jobs.redelivery.property_limit import PROPERTIES_TOO_LARGE, leaves_space_for_retry
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from jobs.tracing.call_spans import NOT_TRACED, TracedBatch

IN_COMPANY = "failed only together with other messages: the attempt does not count"


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
        worker = f"{socket.gethostname()}:{os.getpid()}"
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
                rows = self._rows(fresh, positions, counts, results, worker)
                given_up = len(skipped)
            else:
                lanes = lanes_of(fresh, positions)
                last = pc.indices_nonzero(self._last_chances(fresh, positions, counts)).to_pylist()
                order = gate.order(lanes, last)
                results = self._results(fresh, positions, counts, skipped, deadline, order)
                rows = self._rows(fresh, positions, counts, results, worker)
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

    def _rows(
        self,
        batch: pa.RecordBatch,
        positions: Positions,
        counts: AttemptCounts,
        results: HandlerResults,
        worker: str,
    ) -> pa.RecordBatch:
        rows = batch.num_rows
        columns: dict[str, pa.Array] = {
            "consumer_group": _constant(self.group, pa.string(), rows),
            "topic": positions.topic,
            "broker_name": positions.broker_name,
            "queue_id": positions.queue_id,
            "queue_offset": positions.queue_offset,
            "attempt": positions.attempt,
            "source_topic": batch.column("topic"),
            "source_broker_name": batch.column("broker_name"),
            "source_queue_id": batch.column("queue_id"),
            "source_queue_offset": batch.column("queue_offset"),
            "started_at": results.started_at,
            "finished_at": results.finished_at,
            "worker": _constant(worker, pa.string(), rows),
            "query_id": _constant(self.query_id, pa.string(), rows),
            "batch_id": _constant(self.batch_id, pa.int64(), rows),
        }
        for name in ("message_id", "keys", "tags", "born_timestamp", "store_timestamp"):
            columns[name] = batch.column(name)
        if results.verdict is None:
            columns["verdict"] = _constant(ACK, pa.string(), rows)
        else:
            columns |= self._decided(batch, positions, counts, results)
        return pa.RecordBatch.from_arrays(
            [
                columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
                for field in DELIVERIES.arrow_schema
            ],
            schema=DELIVERIES.arrow_schema,
        )

    def _decided(
        self, batch: pa.RecordBatch, positions: Positions, counts: AttemptCounts, results: HandlerResults
    ) -> dict[str, pa.Array]:
        """The columns of a batch in which not every row is acknowledged."""
        rows = batch.num_rows
        verdict = results.verdict
        nowhere = _constant(False, pa.bool_(), rows)
        in_company = nowhere if results.in_company is None else results.in_company
        put_off = nowhere if results.put_off is None else results.put_off
        isolated = nowhere if results.isolated is None else results.isolated
        not_counted = pc.or_(in_company, put_off)
        reason = results.reason if results.reason is not None else pa.nulls(rows, pa.string())
        ids = batch.column("message_id")
        carries, refused = carried(results, ids, positions, self.group, self.may_carry)
        if refused is not None:
            verdict = pc.if_else(refused.is_valid(), RETRY, verdict)
            reason = pc.coalesce(refused, reason)
        if self.mode == "broadcast":
            verdict = pc.if_else(pc.equal(verdict, ACK), ACK, DROPPED)
        else:
            reason = pc.if_else(in_company, IN_COMPANY, reason)
            beyond = pc.greater(counts.counted, self.policy.max_reconsume_times)
            used_up = pc.or_(
                pc.and_(pc.invert(not_counted), beyond), pc.equal(positions.attempt, LAST_ATTEMPT)
            )
            used_up = pc.and_(pc.equal(verdict, RETRY), used_up)
            verdict = pc.if_else(used_up, DEAD, verdict)
            text = f"attempts used up (max reconsume times {self.policy.max_reconsume_times})"
            reason = pc.if_else(used_up, pc.coalesce(reason, pa.scalar(text)), reason)
            stuck = pc.and_(pc.equal(verdict, RETRY), pc.invert(leaves_space_for_retry(batch, positions)))
            verdict = pc.if_else(stuck, DEAD, verdict)
            why = pc.binary_join_element_wise(PROPERTIES_TOO_LARGE, reason, "; ", null_handling="skip")
            reason = pc.if_else(stuck, why, reason)
        comes_again = pc.equal(verdict, RETRY)
        levels = self._levels(counts.begun, results, comes_again, put_off)
        level = pc.if_else(comes_again, levels, pa.scalar(None, pa.int32()))
        level_us = pa.array([ms * 1_000 for ms in self.policy.level_ms], pa.int64())
        wait = pc.take(level_us, pc.subtract(level, pa.scalar(1, pa.int32())))
        due = pc.add(results.finished_at.cast(pa.int64()), wait)
        not_done = pc.not_equal(verdict, ACK)
        columns = {
            "verdict": verdict,
            "reason": reason,
            "delay_level": level,
            "next_attempt_at": due.cast(results.finished_at.type),
        }
        for name in ("error_type", "error_text", "error_trace"):
            column = getattr(results, name)
            if column is not None:
                columns[name] = column
        columns |= carries
        kept = pa.array(range(rows), pa.int32())
        kept = pc.if_else(not_done, kept, pa.scalar(None, pa.int32()))
        for name in ("flag", "properties", "body"):
            columns[name] = batch.column(name).take(kept)
        # What was not called stays what it is: its marks are of the attempt before.
        parked = pc.equal(verdict, PARKED)
        waits = pc.or_(comes_again, parked)
        columns["properties"] = marked(
            columns["properties"],
            pc.if_else(waits, pc.add(counts.uncounted, not_counted.cast(pa.int32())), 0),
            pc.if_else(waits, pc.add(counts.put_off, put_off.cast(pa.int32())), 0),
            pc.if_else(pc.or_(parked, put_off), counts.isolated, pc.if_else(comes_again, isolated, False)),
            comes_again if self.mode == "orderly" else nowhere,
        )
        return columns

    def _levels(
        self, begun: pa.Array, results: HandlerResults, comes_again: pa.Array, put_off: pa.Array
    ) -> pa.Array:
        """The delays, by the attempts that were begun; the shortest of what is put off."""
        usual = self._drawn(begun, comes_again) if self.policy.backoff else self._listed(begun)
        usual = pc.if_else(put_off, pa.scalar(self.policy.shortest_level, pa.int32()), usual)
        return usual if results.delay_level is None else pc.coalesce(results.delay_level, usual)

    def _drawn(self, begun: pa.Array, comes_again: pa.Array) -> pa.Array:
        rows = zip(begun.to_pylist(), comes_again.to_pylist(), strict=True)
        level = self.policy.level_of_attempt
        return pa.array([level(attempt) if again else None for attempt, again in rows], pa.int32())

    def _listed(self, begun: pa.Array) -> pa.Array:
        levels = pa.array(self.policy.delay_levels, pa.int32())
        last = pa.scalar(len(self.policy.delay_levels), pa.int32())
        first = pa.scalar(1, pa.int32())
        nth = pc.subtract(pc.max_element_wise(pc.min_element_wise(begun, last), first), first)
        return pc.take(levels, nth)


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


def _constant(value: str | int | bool, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
