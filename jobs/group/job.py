"""The group job: messages in, outcomes into the ledger, exactly one row per attempt.

Owns the streaming query of a consumer group.

Invariants, wherever the driver dies:
  - a batch is in the ledger once: its rows carry this checkpoint's query id and batch id, and a batch
    found there is not handled again;
  - of two drivers only the one whose lease is newer gets its rows in, however late the other's commit
    comes (fence.py);
  - what is handled is the range Spark planned (batch_plan), see batch_outcomes.py;
  - in orderly mode nothing is handled while an earlier message of its lane is not done (orderly/), and what
    has to wait is parked in the ledger by the batch's own commit;
  - what is reported (progress_report.py, told_batches.py) is reported after the ledger commit.

Threads: `_process` runs on Spark's callback thread, one batch at a time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from delta_tables.data_losses import LostRange
from delta_tables.deliveries import DEAD, DELIVERIES, DROPPED
from jobs.frames.frame_handler import FrameHandler
from jobs.group.addressing import Acceptance
from jobs.group.batch_outcomes import BatchOutcomes
from jobs.group.batch_range import BatchRange
from jobs.group.batch_report import BatchReport
from jobs.group.batch_size import MOST_ROWS_OF_A_TASK, Handled
from jobs.group.carried import Carriers
from jobs.group.fence import GroupFence
from jobs.group.frame_decisions import FrameDecisions
from jobs.group.given_again import LedgerNames
from jobs.group.learned_of_handler import LearnedOfHandler
from jobs.group.long_calls import LongCalls
from jobs.group.loss_record import LossRecord
from jobs.group.lost_retries import LostRetries, send_again
from jobs.group.named_batch import NamedBatch
from jobs.group.older_checkpoint import newest_of_its_own, refuse_overtaken
from jobs.group.orderly.ledger_lanes import refuse_parked
from jobs.group.orderly.orderly_group import OrderlyGroup
from jobs.group.outcome_commit import OutcomeCommit
from jobs.group.outcome_rules import OutcomeRules
from jobs.group.progress_report import ProgressReport
from jobs.group.slice_tasks import GroupReader, ReadTask, into_bins, per_bin, reader_of
from jobs.group.start import starting_offsets
from jobs.group.told_batches import ToldBatches
from jobs.group.truncated_log import TruncatedLog
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import NO_BATCH, StreamCheckpoint
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.query_start import start_of
from jobs.settings import ConsumeSettings
from jobs.tracing.batch_span import batch_span
from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.names import retry_topic
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.source import batch_bound, batch_plan

_log = logging.getLogger(__name__)


class GroupJob:
    """One consumer group's query."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ConsumeSettings,
        policy: RetryPolicy,
        client: Client,
        gate: BatchGate,
        lease: GroupLease | GroupLeases | None,
        *,
        reader: GroupReader | None = None,
        before_ledger_commit: Callable[[int], None] = lambda batch_id: None,
        after_ledger_commit: Callable[[int], None] = lambda batch_id: None,
        on_batch: Callable[[BatchReport], None] = lambda report: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Puts the job together without starting it.

        Args:
            spark: the session.
            settings: the group's settings.
            policy: when failed messages come again.
            client: the broker.
            gate: passed by every batch.
            lease: the broker's lease on the group; None in broadcast mode.
            reader: reads the group's messages; None reads the settings' store or the broker.
            before_ledger_commit: called with the batch id between the last look at the lease and the
                ledger's commit; tests hold the driver there.
            after_ledger_commit: called with the batch id between the ledger's commit and Spark's own;
                tests kill the process there.
            on_batch: called with each batch that is handled and reported.
            clock: of the tasks, see `OutcomeTask`; travels to the executors.
            now: what tells which retries are late.
        """
        # A session of its own: nobody else's commits are taken for the ledger's, see append_once.
        self._spark = spark.newSession()
        self._streams = spark
        self._settings = settings
        self._client = client
        self._gate = gate
        self._lease = lease
        self._after_ledger_commit = after_ledger_commit
        self._on_batch = on_batch
        self._fence: GroupFence | None = None
        if lease is not None:
            self._fence = GroupFence(self._spark, settings.ledger, DELIVERIES, settings.group, lease)
        self._checkpoint = StreamCheckpoint(settings.checkpoint_of("group"))
        self._brokers = GroupBrokers(client)
        self._told_batches = ToldBatches(settings.group, self._brokers, lease)
        self._store_id = "" if self._brokers.several else str(client.cluster()["store_id"])
        self._reader = reader or reader_of(settings, client.endpoint, self._brokers.retry_timeout_ms / 1000)
        self._lanes: OrderlyGroup | None = None
        if settings.mode == "orderly":
            self._lanes = OrderlyGroup(self._spark, settings, client, self._checkpoint.bound_file)
        frames: FrameDecisions | None = None
        if isinstance(settings.handler, FrameHandler):
            function = settings.handler
            frames = FrameDecisions(spark, settings.group, function, policy, lambda: gate.is_given_up)
        largest_body = self._brokers.largest_body() if settings.send_to else None
        may_carry = Carriers(
            Acceptance(frozenset(settings.send_to), largest_body),
            {table.name: table.columns(self._spark) for table in settings.write_to},
        )
        self._learned = LearnedOfHandler(spark, settings, self._checkpoint)
        self._outcomes = BatchOutcomes(
            self._spark,
            OutcomeRules(settings, policy, may_carry, LongCalls.of_group(spark, settings), clock),
            gate,
            OutcomeCommit(self._spark, settings.ledger, lease, self._fence, before_ledger_commit),
            self._learned,
            lanes=self._lanes,
            frames=frames,
        )
        self._progress = ProgressReport(self._spark, settings, self._brokers, lease, self._lanes)
        self._truncated = TruncatedLog(
            settings.ledger, settings.group, self._spark, goes_on=settings.on_data_loss == "record"
        )
        self._start: dict[MessageQueue, int] = {}
        self._planned = NO_BATCH
        self._newest_of_its_own: int | None = None
        self._last_in_ledger: int | None = None
        self.reached: dict[MessageQueue, int] = {}
        self.epochs: dict[str, int] = {}
        self._lost_retries: LostRetries | None = None
        if lease is not None:
            self._lost_retries = LostRetries(
                *(settings.ledger, settings.group, self._brokers, self.reached),
                partial(send_again, self._spark, settings.ledger, settings.group, client.endpoint),
                self._spark,
                now=now,
            )

    @property
    def checkpoint(self) -> StreamCheckpoint:
        """The query's checkpoint."""
        return self._checkpoint

    @property
    def lanes(self) -> OrderlyGroup | None:
        """The group's lanes, in orderly mode."""
        return self._lanes

    @property
    def paused(self) -> list[MessageQueue]:
        """Queues of which so many messages are parked that they are read no further."""
        return [] if self._lanes is None else self._lanes.paused

    def look_for_lost_retries(self) -> int:
        """Sends again what did not come back, but in broadcast mode; returns how many messages."""
        return 0 if self._lost_retries is None else self._lost_retries.look()

    def close(self) -> None:
        """Ends what goes on beside the query, which has ended."""
        if self._lanes is not None:
            self._lanes.close()

    def start(self) -> StreamingQuery:
        """Starts the query."""
        settings = self._settings
        # Spark's default, INT96, costs several times as much to write, and a row has five times.
        self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if self._fence is not None:
            self._fence.take()  # before the ledger is queried for how far the group is
        self._truncated.begin()
        begin = start_of(
            self._checkpoint,
            self._brokers,
            lambda: starting_offsets(settings, self._spark, self._brokers, self._truncated),
        )
        if self._lanes is None:
            refuse_parked(settings.ledger, settings.group, self._spark)
            batch_bound.read_up_to(self._checkpoint.bound_file, {})
        self._start = self._brokers.positions(begin)
        self.reached.update(self._start)
        committed = self._checkpoint.reached()
        if committed is not None:
            self._reach(committed)
        self.look_for_lost_retries()
        if self._lanes is not None:
            self._lanes.begin(self.reached)
        self._learned.begin()
        self._find_own_batches()
        source = (
            self._streams.readStream.format("lakemq")
            # Only planned with, never evaluated: tasks read their slices themselves (slice_tasks), and the
            # tag filter is theirs.
            .schema("queue_offset BIGINT")
            .option(*settings.subscription.as_option())
            .option("endpoint", self._client.endpoint)
            .option("startingOffsets", json.dumps(begin))
            .option("maxOffsetsPerTrigger", str(settings.max_messages_per_batch))
            .option("planFile", str(self._checkpoint.plan_file))
            .option("batchBoundFile", str(self._checkpoint.bound_file))
            .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
            .option("retryTimeoutMs", str(self._brokers.retry_timeout_ms))
            .option("brokersJoin", "true")
        )
        if self._lease is not None:
            source = source.option("joinAtGroup", settings.group)
        if settings.path is not None:
            source = source.option("path", settings.path)
        return (
            source.load()
            .writeStream.queryName(f"{settings.group} group")
            .foreachBatch(self._process)
            .option("checkpointLocation", self._checkpoint.prepare())
            .trigger(**settings.spark_trigger)
            .start()
        )

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        with self._gate.batch():
            query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query_id is not None, "foreachBatch runs outside a streaming query"
            with batch_span(self._settings.group, self._settings.topics, query_id, batch_id) as span:
                report = self._run(batch_id, query_id)
                span.came_to(report.messages, report.retried, report.given_up)

    def _run(self, batch_id: int, query_id: str) -> BatchReport:
        began = time.monotonic()
        self.look_for_lost_retries()  # what this batch fails is not even sent
        handled = Handled()
        batch = NamedBatch(self._settings.group, query_id, batch_id)
        covered = self._range(batch_id)
        lost: LossRecord | None = None
        gone: list[LostRange] = []
        if self._settings.on_data_loss == "record":
            gone = self._truncated.go_on(covered.truncated)
            covered.refuse_other_losses(self._settings.group)
        names = self._names_in(covered)
        if self._settings.on_data_loss == "record":
            lost = LossRecord(self._spark, names, gone)
        reader = replace(self._reader, on_loss=lost, names=names)
        if batch_id > self._newest_in_ledger(batch_id, query_id, covered):
            handled = self._outcomes.write(batch, covered.slices(self._store_id), reader, lost)
            self._last_in_ledger = batch_id
            self._after_ledger_commit(batch_id)
        else:
            _log.info("batch %s is in the ledger already: its messages are not handled again", batch_id)
            if self._lanes is not None:
                self._lanes.repeated(covered.slices(self._store_id))
            if lost is not None:
                self._read_again(covered, lost)
        if lost is not None:
            at = (self._settings.ledger, self._settings.group, query_id, batch_id, batch.application)
            lost.write(*at, self._spark)
        if self._lease is not None:
            self._lease.check()
        behind = self._progress.report(batch, covered, names)
        self._reach(covered.end)
        self._checkpoint.reach(batch_id, covered.end)
        took = time.monotonic() - began
        topics = frozenset(queue.topic for queue in covered.end.queues)
        came_to = (handled.rows, handled.retried, handled.given_up)
        report = BatchReport(*came_to, took, behind, handled.put_off, topics)
        given_up_as = DEAD if self._lease is not None else DROPPED
        self._told_batches.tell(f"{query_id}.{batch_id}", report, given_up_as)
        self._on_batch(report)
        return report

    def _reach(self, end: ClusterOffsets) -> None:
        self.reached.update(end.queues)
        self.epochs.update({name: at.epoch for name, at in end.brokers.items() if at.says_epoch})

    def _read_again(self, covered: BatchRange, lost: LossRecord) -> None:
        """Finds anew what a batch could not read, when the driver may have ended before it was written.

        Not on the retry topic: which of its positions have a delivery is not known once they are gone.
        """
        again = retry_topic(self._settings.group)
        slices = [piece for piece in covered.slices(self._store_id) if piece.queue.topic != again]
        if slices:
            light = StructType([field for field in self._reader.schema if field.name == "queue_offset"])
            bins = into_bins(slices, self._spark.sparkContext.defaultParallelism, MOST_ROWS_OF_A_TASK)
            read = ReadTask(replace(self._reader, schema=light, on_loss=lost), bins)
            per_bin(self._spark, len(bins), read, light.toDDL()).count()

    def _names_in(self, covered: BatchRange) -> LedgerNames:
        """What a batch's messages are called: one planned before a promotion has none of the later ones."""
        return self._truncated.names.as_of({name: at.epoch for name, at in covered.end.brokers.items()})

    def _find_own_batches(self) -> None:
        """Before Spark plans: behind a plan, a checkpoint that lost a batch looks as if it never had."""
        self._planned = self._checkpoint.last_planned()
        query_id = self._checkpoint.query_id()
        if query_id is not None:
            at = (self._checkpoint, self._planned, self._settings.ledger)
            self._newest_of_its_own = newest_of_its_own(*at, query_id, self._spark)

    def _newest_in_ledger(self, batch_id: int, query_id: str, covered: BatchRange) -> int:
        """The newest batch of this checkpoint in the ledger; queried once, this job is the only writer."""
        if self._last_in_ledger is None:
            checkpoint, ledger = self._checkpoint, self._settings.ledger
            newest = self._newest_of_its_own
            if newest is None:
                newest = newest_of_its_own(checkpoint, self._planned, ledger, query_id, self._spark)
            if self._lease is not None:
                reached = covered.end.queues
                if batch_id > newest:
                    reached = {queue: covered.begin_of(queue) for queue in reached}
                names = self._names_in(covered)
                refuse_overtaken(
                    checkpoint, ledger, self._settings.group, query_id, reached, self._spark, names
                )
            self._last_in_ledger = newest
        return self._last_in_ledger

    def _range(self, batch_id: int) -> BatchRange:
        plan = batch_plan.take(self._checkpoint.plan_file)
        assert plan is not None, f"Spark runs batch {batch_id} without having asked for its partitions"
        begin, end, truncated = plan
        if batch_id == NO_BATCH + 1:
            # Where the group began is decided once; the source asks the broker of today at each repeat.
            # A broker that came since is read from where the source found it.
            known = {queue.broker_name for queue in self._start}
            begin = ClusterOffsets(
                {
                    name: Offsets(at.epoch, at.topic_ids, {q: self._start.get(q, 0) for q in at.queues})
                    if name in known or not self._brokers.several
                    else begin.brokers.get(name, Offsets(at.epoch))
                    for name, at in end.brokers.items()
                }
            )
        return BatchRange(begin, end, truncated)
