"""Rows of `deliveries`, made of messages and of what their calls came to.

Owns what a result means for its row: whether the message comes again and when, and what the row keeps of it.

Invariants: one row per message, in order. A failed attempt is RETRY while attempts are left and the broker
can take it back, DEAD otherwise, DROPPED in broadcast mode; what does not count leaves a mark in its
properties. What a verdict sends and writes is in its own row.

Processes: executors.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ACK, DEAD, DELIVERIES, DROPPED, PARKED, RETRY
from jobs.group.carried import Carriers, carried
from jobs.handler.results import HandlerResults
from jobs.redelivery.counted_attempts import AttemptCounts, marked
from jobs.redelivery.original_position import LAST_ATTEMPT, Positions
from jobs.redelivery.property_limit import PROPERTIES_TOO_LARGE, leaves_space_for_retry
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode

IN_COMPANY = "failed only together with other messages: the attempt does not count"


@dataclass(frozen=True)
class OutcomeRows:
    """Makes the rows of one batch; its attributes are those of `OutcomeTask`."""

    group: str
    policy: RetryPolicy
    mode: Mode
    query_id: str
    batch_id: int
    may_carry: Carriers

    def __call__(
        self,
        batch: pa.RecordBatch,
        positions: Positions,
        counts: AttemptCounts,
        results: HandlerResults,
    ) -> pa.RecordBatch:
        """The rows of some messages.

        Args:
            batch: the messages, as they were read.
            positions: where they were first.
            counts: their attempts before.
            results: what their calls came to.
        """
        rows, worker = batch.num_rows, f"{socket.gethostname()}:{os.getpid()}"
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


def _constant(value: str | int | bool, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
