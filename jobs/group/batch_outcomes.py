"""The outcomes of a batch, from its slices to the ledger, in spite of a handler that ends its worker.

Owns how a batch is cut into tasks, and the order in which it is handled, appended and learned from.

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
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.frames.frame_handler import FrameHandler
from jobs.group.batch_parts import BatchPart, PartRows, parts_of
from jobs.group.batch_size import Handled, HandlingTime
from jobs.group.frame_decisions import FrameDecisions
from jobs.group.learned_of_handler import LearnedOfHandler
from jobs.group.loss_record import LossRecord
from jobs.group.named_batch import NamedBatch
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.orderly.orderly_group import OrderlyGroup
from jobs.group.outcome_commit import OutcomeCommit
from jobs.group.outcome_rules import OutcomeRules
from jobs.group.parted_batch import PartedBatch
from jobs.group.skips.open_skips import SkipWatch
from jobs.group.skips.skipped_rows import NO_SKIPS
from jobs.group.worker_death import is_worker_death, tries_before
from jobs.handler.loader import HandlerTarget
from jobs.runtime.batch_gate import BatchGate
from structured_streaming.source.partitions import QueueSlice
from structured_streaming.source.slice_reader import SliceReader

_log = logging.getLogger(__name__)

_APART = "the handler has a process of its own from here on"
_IN_PARTS = "in smaller and smaller parts, until the messages that it dies of stand alone"


class BatchOutcomes:
    """Writes one group's outcomes, a batch at a time.

    Args:
        spark: a session of its own: nobody else's commits are taken for the ledger's, see append_once.
        rules: what holds for every batch.
        gate: passed by every batch.
        commit: appends the outcomes.
        learned: what is known of the handler; each batch adds to it.
        lanes: the group's lanes; in orderly mode.
        frames: decides in the place of a handler of messages, where the group has a function of DataFrames.
    """

    def __init__(
        self,
        spark: SparkSession,
        rules: OutcomeRules,
        gate: BatchGate,
        commit: OutcomeCommit,
        learned: LearnedOfHandler,
        *,
        lanes: OrderlyGroup | None,
        frames: FrameDecisions | None,
    ) -> None:
        self._spark = spark
        self._rules = rules
        self._settings = rules.settings
        self._gate = gate
        self._commit = commit
        self._learned = learned
        self._lanes = lanes
        self._frames = frames
        self._skips: SkipWatch | None = None
        if self._settings.mode != "broadcast":
            self._skips = SkipWatch(self._settings.ledger, self._settings.group, spark)

    def write(
        self,
        batch: NamedBatch,
        slices: Sequence[QueueSlice],
        reader: SliceReader,
        lost: LossRecord | None,
    ) -> Handled:
        """Handles a batch and appends its outcomes.

        Args:
            batch: the batch.
            slices: its part of each queue; one without is in the ledger.
            reader: reads its messages.
            lost: gets what the reader cannot read; None: that fails the batch.

        Returns:
            What was handled.
        """
        if not slices:
            return Handled()  # a repeated first batch whose start has moved past it: the ledger has it all
        quarantine = self._learned.quarantine
        while True:
            try:
                return self._write(batch, slices, reader, lost)
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

    def _write(
        self,
        batch: NamedBatch,
        slices: Sequence[QueueSlice],
        reader: SliceReader,
        lost: LossRecord | None,
    ) -> Handled:
        settings, quarantine = self._settings, self._learned.quarantine
        query_id, batch_id = batch.query_id, batch.batch_id
        time_taken = HandlingTime(self._spark)
        began_at = datetime.now(UTC)
        parts, lane_rules = self._parts(reader, slices)
        skips = NO_SKIPS if self._skips is None else self._skips.for_batch()
        handler: HandlerTarget | DecidedVerdicts
        if isinstance(settings.handler, FrameHandler):
            assert self._frames is not None, "the group has a handler of messages"
            handler = self._frames.decide(parts, skips, time_taken, lost)
        else:
            handler = settings.handler
        handle = self._rules.task(batch, handler, quarantine.host, time_taken, lane_rules, skips)
        blamed = quarantine.parted(query_id, batch_id)
        # Null in every row, in nine columns of a file and in three.
        wanted = {"outbox": bool(settings.send_to), "table_rows": bool(settings.write_to)}
        columns = [name for name in DELIVERIES.column_names if wanted.get(name, True)]
        outcomes: PartRows | pa.Table
        if blamed is None:
            outcomes = PartRows(self._spark, parts, handle, columns)
        else:
            note = partial(quarantine.part, query_id, batch_id)
            parted = PartedBatch(self._spark, handle, blamed, note, lambda: self._gate.is_given_up)
            outcomes = parted.outcomes(parts).select(columns)
        self._commit.append(outcomes, batch)
        self._learned.learn(time_taken.total)
        if self._skips is not None:
            self._skips.committed(time_taken.total.skipped)
        if self._lanes is not None:
            self._lanes.committed(query_id, batch_id, began_at)
        return time_taken.total

    def _parts(
        self, reader: SliceReader, slices: Sequence[QueueSlice]
    ) -> tuple[list[BatchPart], LaneRules | None]:
        rows_of_a_task = self._learned.size.rows_of_a_task
        if self._lanes is not None:
            part, rules = self._lanes.cut(reader, slices, rows_of_a_task)
            return [part], rules
        settings = self._settings
        return parts_of(self._spark, settings.ledger, settings.group, reader, slices, rows_of_a_task), None
