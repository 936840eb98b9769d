"""The outcomes of a batch, from its slices to the ledger, in spite of a handler that ends its worker.

Owns how a batch is cut into tasks, how they handle it, and the append of what they say.

Invariants:
  - a batch is run by one Spark action over the range Spark planned, so no row is handled twice by the job's
    own doing (a task that Spark repeats does handle its rows again: at-least-once); a function of DataFrames
    is evaluated before it, and decides once about each message (frames/);
  - a worker that dies ends no group: what its task has is handled once more, with the handler in a process of
    its own, and so are the batches after it (quarantine.py), or in parts where that is not enough
    (parted_batch.py).

Threads: the group job's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_once
from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.frames.evaluation import FrameEvaluation
from jobs.frames.frame_handler import FrameHandler
from jobs.group.batch_parts import BatchPart, frame_of, parts_of
from jobs.group.batch_size import LONGEST_BATCH, BatchSize, Handled, HandlingTime, calls_at_a_time
from jobs.group.fence import GroupFence
from jobs.group.loss_record import LossRecord
from jobs.group.message_frame import MessageTask, message_schema, task_schema
from jobs.group.named_batch import NamedBatch
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.orderly.orderly_group import OrderlyGroup
from jobs.group.outcomes import OutcomeTask
from jobs.group.parted_batch import PartedBatch
from jobs.group.quarantine import Quarantine
from jobs.group.skips.open_skips import SkipWatch
from jobs.group.skips.skipped_rows import NO_SKIPS, Skips
from jobs.group.worker_death import is_worker_death, tries_before
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.settings import ConsumeSettings
from jobs.tracing.call_spans import TracedBatch
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader

_log = logging.getLogger(__name__)

_APART = "the handler has a process of its own from here on"
_IN_PARTS = "in smaller and smaller parts, until the messages that it dies of stand alone"


class BatchOutcomes:
    """Writes one group's outcomes, a batch at a time.

    Args:
        spark: a session of its own: nobody else's commits are taken for the ledger's, see append_once.
        users: the user's session, where their tables, views and functions are.
        settings: the group's settings.
        policy: when failed messages come again.
        reader: reads the group's messages.
        gate: passed by every batch.
        lease: the broker's lease on the group; None in broadcast mode.
        fence: takes the rows of the newest lease only; None in broadcast mode.
        lanes: the group's lanes, in orderly mode.
        checkpoint: the query's, beside which it is kept what was learned of the handler.
        largest_body: bytes of a body that every broker takes; None where that is not known.
        before_ledger_commit: called with the batch id between the last look at the lease and the ledger's
            commit.
        clock: of the tasks, see `OutcomeTask`; travels to the executors.
    """

    def __init__(
        self,
        spark: SparkSession,
        users: SparkSession,
        settings: ConsumeSettings,
        policy: RetryPolicy,
        reader: SliceReader,
        gate: BatchGate,
        lease: GroupLease | GroupLeases | None,
        fence: GroupFence | None,
        lanes: OrderlyGroup | None,
        checkpoint: StreamCheckpoint,
        largest_body: int | None,
        *,
        before_ledger_commit: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        self._spark = spark
        self._users = users
        self._settings = settings
        self._policy = policy
        self._reader = reader
        self._gate = gate
        self._lease = lease
        self._fence = fence
        self._lanes = lanes
        self._largest_body = largest_body
        self._before_ledger_commit = before_ledger_commit
        self._clock = clock
        self._frames: FrameEvaluation | None = None
        if isinstance(settings.handler, FrameHandler):
            settings.handler.check(users.createDataFrame([], message_schema()))
            self._frames = FrameEvaluation(settings.handler, policy, lambda: gate.is_given_up)
        self._unknown_is_slow, calls = calls_at_a_time(settings.handler, settings.host)
        host = settings.host
        if lanes is not None:
            calls = 1  # how many a batch may have at a time is its lanes' matter
            # A worker that dies has its batch run again while others of the batch may still make calls: a
            # process of the handler's own dies alone.
            host = replace(host, isolation="process")
        self._size = BatchSize(
            checkpoint.bound_file,
            settings.max_messages_per_batch,
            settings.batch_time_s,
            lambda: users.sparkContext.defaultParallelism,
            calls,
            settings.handler.target,
        )
        self._quarantine = Quarantine(checkpoint.quarantine_file, host, settings.handler.target)
        self._skips: SkipWatch | None = None
        if settings.mode != "broadcast":
            self._skips = SkipWatch(settings.ledger, settings.group, spark)

    def begin(self) -> None:
        """Sets the size of the first batch."""
        self._size.begin(single=self._unknown_is_slow)

    def write(self, batch: NamedBatch, slices: Sequence[QueueSlice], lost: LossRecord | None) -> Handled:
        """Handles a batch and appends its outcomes.

        Args:
            batch: the batch.
            slices: its part of each queue; one without is in the ledger.
            lost: gets what cannot be read; None: that fails the batch.

        Returns:
            What was handled.
        """
        if not slices:
            return Handled()  # a repeated first batch whose start has moved past it: the ledger has it all
        quarantine = self._quarantine
        while True:
            try:
                return self._write(batch, slices, lost)
            except Exception as error:
                if self._frames or quarantine.parted(batch.query_id, batch.batch_id) is not None:
                    raise
                if not is_worker_death(error):
                    raise
                tried_apart = quarantine.host.isolation == "process" or tries_before(error) > 1
            quarantine.begin()
            if tried_apart:
                quarantine.part(batch.query_id, batch.batch_id)
            _log.warning(
                "a worker died under the handler: batch %s of group %s is handled again, %s",
                *(batch.batch_id, self._settings.group, _IN_PARTS if tried_apart else _APART),
            )
            if lost is not None:
                lost.begin_again()

    def _write(self, batch: NamedBatch, slices: Sequence[QueueSlice], lost: LossRecord | None) -> Handled:
        settings = self._settings
        query_id, batch_id = batch.query_id, batch.batch_id
        time_taken = HandlingTime(self._spark)
        reader = replace(self._reader, on_loss=lost)
        began_at = datetime.now(UTC)
        parts, rules = self._parts(reader, slices)
        skips = NO_SKIPS if self._skips is None else self._skips.for_batch()
        handler: HandlerTarget | DecidedVerdicts
        if isinstance(settings.handler, FrameHandler):
            handler = self._decided(parts, skips, time_taken, lost)
        else:
            handler = settings.handler
        handle = OutcomeTask(
            settings.group,
            handler,
            self._policy,
            settings.mode,
            query_id,
            batch_id,
            self._quarantine.host,
            time_taken,
            frozenset(settings.send_to),
            rules,
            self._largest_body,
            skips,
            TracedBatch.here(settings.group),
            # What is put off would be left to a later run, and this one is asked for all that is there.
            limit_s=None if settings.available_now else LONGEST_BATCH * settings.batch_time_s,
            clock=self._clock,
        )
        blamed = self._quarantine.parted(query_id, batch_id)
        if blamed is None:
            outcomes = frame_of(self._spark, parts, handle, DELIVERIES.ddl)
        else:
            note = partial(self._quarantine.part, query_id, batch_id)
            parted = PartedBatch(self._spark, handle, blamed, note, lambda: self._gate.is_given_up)
            outcomes = parted.outcomes(parts)
        if not settings.send_to:
            outcomes = outcomes.drop("outbox")  # null in every row, in nine columns of a file
        if self._lease is not None:
            self._lease.check()
        self._before_ledger_commit(batch_id)
        if self._fence is not None:
            self._fence.append(outcomes, batch_id, has_effects=blamed is None)
        else:
            app_id = batch.application
            append_once(
                outcomes, settings.ledger, DELIVERIES, app_id=app_id, version=batch_id, has_effects=True
            )
        self._size.learn(time_taken.total)
        self._quarantine.learn(time_taken.total.ended)
        if self._skips is not None:
            self._skips.committed(time_taken.total.skipped)
        if self._lanes is not None:
            self._lanes.committed(query_id, batch_id, began_at)
        return time_taken.total

    def _parts(
        self, reader: SliceReader, slices: Sequence[QueueSlice]
    ) -> tuple[list[BatchPart], LaneRules | None]:
        rows_of_a_task = self._size.rows_of_a_task
        if self._lanes is not None:
            part, rules = self._lanes.cut(reader, slices, rows_of_a_task)
            return [part], rules
        settings = self._settings
        return parts_of(self._spark, settings.ledger, settings.group, reader, slices, rows_of_a_task), None

    def _decided(
        self, parts: Sequence[BatchPart], skips: Skips, time_taken: HandlingTime, lost: LossRecord | None
    ) -> DecidedVerdicts:
        """Has the function of DataFrames decide; the tasks of the outcomes read the messages once more."""
        assert self._frames is not None, "the group has a handler of messages"
        began = time.monotonic()
        messages = frame_of(self._users, parts, MessageTask(self._settings.group, skips), task_schema())
        decided = self._frames.decide(messages)
        cores = self._spark.sparkContext.defaultParallelism
        time_taken(Handled(0, (time.monotonic() - began) * cores))
        if lost is not None:
            lost.begin_again()  # those of the second reading count
        return decided
