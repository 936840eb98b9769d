"""A consumer group's application: the group, reactions, outbox and rows streams in one Spark application.

Owns the order of a start: locks, lease, session, tables, streams; it is the composition root of the jobs of a
group.

Invariants: nothing is started before this process is the only one that may write the ledger and drive the
group.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.data_losses import DATA_LOSSES
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.table import Table
from delta_tables.views import TABLES
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.group.batch_report import BatchReport
from jobs.group.orderly.rounds import check_done, further_starts
from jobs.group.registration import Registration
from jobs.group.waiting_retries import WaitingRetries, waiting_retries
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.lineage.group_run import group_run
from jobs.redelivery.original_position import LAST_ATTEMPT
from jobs.redelivery.retry_policy import DEFAULT_MAX_RECONSUME_TIMES, RetryPolicy
from jobs.runtime.available import AvailableMessages
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.runtime.checkpoint_owner import note, refuse_anothers
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.idle import IdleWatch
from jobs.runtime.job_lease import OUTAGE_TIMEOUT_S, job_lease
from jobs.runtime.lease_owner import LeaseOwner
from jobs.runtime.run_loop import RunLoop
from jobs.runtime.spark_end import jvm_of
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError, Unavailable, from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jobs.group.job import GroupJob
    from jobs.group.ledger_consumer import LedgerConsumer

_log = logging.getLogger(__name__)

WRITTEN = (
    *(DELIVERIES, DEAD_LETTERS, SENT_MESSAGES, WRITTEN_ROWS, REFUSED_SENDS, CONSUMER_OFFSETS, DATA_LOSSES),
)

MakeSession = Callable[[], "SparkSession"]


def consume(
    settings: ConsumeSettings,
    make_session: MakeSession,
    *,
    after_ledger_commit: Callable[[int], None] = lambda batch_id: None,
    started: Callable[[RunLoop], None] = lambda loop: None,
    on_batch: Callable[[BatchReport], None] = lambda report: None,
    on_end: Callable[[WaitingRetries], None] = lambda left: None,
) -> None:
    """Runs a consumer group until it is stopped or idle, or has handled what was there.

    Args:
        settings: the group's settings.
        make_session: makes the Spark session, called once the broker and the ledger are ours: what is
            wrong with the settings shows before a JVM starts.
        after_ledger_commit: see GroupJob.
        started: called with the loop when all streams run; a caller that embeds this stops it through that.
        on_batch: see GroupJob.
        on_end: called at the end of an AvailableNow run, with what it leaves for a later one.

    Raises:
        LakeMQError: wrong settings, a conflict about group or ledger, or a stream that failed.
        Unavailable: it ended without one of several brokers.
        SparkEnded: a signal asked it to stop, and ended Spark with it.
    """
    if isinstance(settings.handler, HandlerTarget):
        _check_handler(settings.handler.load(), settings)
    _check_tables(settings, None)
    refuse_anothers(settings)
    with ExitStack() as stack:
        client = stack.enter_context(Client(settings.endpoint))
        policy = retry_policy(client, settings)
        locks = stack.enter_context(sole_writer(settings.ledger, WRITTEN))
        registration = Registration(client, settings)
        registration.make()
        lease: GroupLease | GroupLeases | None = None
        if settings.mode != "broadcast":
            lease = group_lease(client, settings)
            lease.acquire()
            stack.callback(lease.release)
            stack.push(partial(registration.take_back, lease))
        spark = make_session()
        name_jvm(locks, spark)
        _check_tables(settings, spark)
        settings.ledger.create_for(WRITTEN, TABLES, spark)
        with group_run(spark, settings, client.endpoint) as tell:

            def report(batch: BatchReport) -> None:
                tell(batch)
                on_batch(batch)

            _run(spark, settings, policy, client, lease, registration, after_ledger_commit, started, report)
        if settings.available_now and settings.mode != "broadcast":
            on_end(waiting_retries(settings.ledger, settings.group, spark))


def _check_handler(handler: LoadedHandler, settings: ConsumeSettings) -> None:
    if settings.mode == "orderly" and handler.vectorised:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            "the handler takes batches: orderly mode calls one message of a queue or sharding key after the "
            "other, and takes a handler of single messages",
        )


def _check_tables(settings: ConsumeSettings, spark: SparkSession | None) -> None:
    """Looks for the tables that verdicts may write rows to: those of catalogs with a session, others before.

    Raises:
        InvalidRequest: TABLE_NOT_EXIST, TABLE_REFUSED.
        Unavailable: who keeps one does not answer.
    """
    for table in settings.write_to:
        if table.needs_spark == (spark is not None):
            try:
                table.columns(spark)
            except LakeMQError as error:
                raise from_code(error.code, f"--write-to {table.name}: {error.detail}") from error


def _run(
    spark: SparkSession,
    settings: ConsumeSettings,
    policy: RetryPolicy,
    client: Client,
    lease: GroupLease | GroupLeases | None,
    registration: Registration,
    after_ledger_commit: Callable[[int], None],
    started: Callable[[RunLoop], None],
    on_batch: Callable[[BatchReport], None],
) -> None:
    from jobs.group.job import GroupJob
    from jobs.outbox.job import OutboxJob, is_needed
    from jobs.reactions import ReactionJob
    from jobs.table_rows.job import TableRowsJob
    from jobs.table_rows.waiting_tables import check_named

    brokers = GroupBrokers(client)
    gate = BatchGate()
    loop = RunLoop(spark, gate, stop_timeout_s=settings.stop_timeout_s)
    group = GroupJob(
        *(spark, settings, policy, client, gate, lease),
        after_ledger_commit=after_ledger_commit,
        on_batch=on_batch,
    )
    with loop.stopped_by_signals(), closing(group):
        ledger_streams: list[LedgerConsumer] = []
        if settings.mode != "broadcast":
            assert lease is not None, "a group holds its lease, but in broadcast mode"
            jobs: list[type[LedgerConsumer]] = [ReactionJob]
            if is_needed(settings, spark):
                jobs.append(OutboxJob)
            check_named(settings, spark)
            where = (spark, settings, client.endpoint, gate, lease)
            ledger_streams = [job(*where) for job in jobs]
            ledger_streams += [TableRowsJob(*where, table) for table in settings.write_to]
            for stream in ledger_streams:
                stream.decide_start()
        registration.keep()
        note(settings)

        def is_away() -> bool:
            return not brokers.are_all_ready()

        give_up = lease.stop_retrying if lease is not None else lambda: None
        if settings.available_now:
            there = AvailableMessages(brokers, settings.subscription)
            started(loop)
            stages = (
                partial(loop.start, starts, is_away=is_away, give_up=give_up)
                for starts in _stages(group, ledger_streams, there)
            )
            whole = loop.run_through(stages, is_away=is_away, give_up=give_up)
            if not whole:
                _log.warning("stopped before its end: the next run handles what is left")
            if paused := group.paused:
                _log.warning(
                    "%s of a queue are parked: what is behind them waits for a later run", settings.max_parked
                )
            if whole and (left_out := there.left_out(group.reached, paused)):
                raise _without(left_out, "the group has handled what was there")
            if whole and group.lanes is not None:
                check_done(group.lanes)
            return
        watch = None
        if settings.until_idle_s is not None:
            watch = IdleWatch(
                *(spark, client, settings.ledger, settings.group, settings.subscription),
                *(group.reached, group.epochs),
                while_waiting=group.look_for_lost_retries,
                hold_ups=[s.hold_up for s in ledger_streams if isinstance(s, (OutboxJob, TableRowsJob))],
            )
        # Last: whatever fails before leaves no stream.
        starts = [group.start, *(stream.start for stream in ledger_streams)]
        streams = loop.start(starts, is_away=is_away, give_up=give_up)
        started(loop)
        idle = loop.run(
            streams,
            is_idle=None if watch is None else watch.is_idle,
            idle_s=settings.until_idle_s or 0.0,
            is_away=is_away,
            give_up=give_up,
        )
        if idle and watch is not None and watch.left_out:
            raise _without(watch.left_out, "the group has nothing left to do")
        if idle and watch is not None and watch.left_unsent is not None:
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                "the group has nothing left to do but to send what its verdicts send, or to write what they "
                f"write: {watch.left_unsent}",
            )


def _stages(
    group: GroupJob, ledger_streams: Sequence[LedgerConsumer], there: AvailableMessages
) -> Iterator[list[Callable[[], StreamingQuery]]]:
    """What a run over what is there starts, one after the other has ended."""
    left = [stream.start for stream in ledger_streams if stream.comes_back and stream.has_unfinished()]
    if left:  # by a run that was stopped: what failed in it is among what is there
        yield left
    there.look()
    if group.lanes is not None:
        group.lanes.read_up_to(there.ends)
    yield [group.start]
    if group.lanes is not None:
        for _ in further_starts(group.lanes):
            yield [group.start]
    # What the group writes is in the ledger before the streams over it look what is there.
    yield [stream.start for stream in ledger_streams]


def _without(brokers: Sequence[str], done: str) -> Unavailable:
    return Unavailable(
        "SERVICE_NOT_AVAILABLE",
        f"{done} but at {', '.join(brokers)}, which does not answer: what is there is handled when it is "
        "back and the group runs",
    )


def retry_policy(client: Client, settings: ConsumeSettings) -> RetryPolicy:
    """The policy of the settings; how often is the group's own unless they say so.

    Of an orderly group messages come again after the shortest delay and as often as they need, as RocketMQ's
    do: giving one up lets those behind it pass, so that has to be asked for.
    """
    levels = client.cluster()["delay_levels_ms"]
    most = settings.max_reconsume_times
    if settings.mode == "orderly":
        most = LAST_ATTEMPT if most is None else most
        return RetryPolicy.of(settings.retry_delays, levels, most, settings.retry_backoff, shortest=True)
    if most is None:
        try:
            most = client.group(settings.group).retry_max_times
        except InvalidRequest as error:
            if error.code != "GROUP_NOT_EXIST":
                raise
            most = DEFAULT_MAX_RECONSUME_TIMES
    return RetryPolicy.of(settings.retry_delays, levels, most, settings.retry_backoff)


def group_lease(client: Client, settings: ConsumeSettings) -> GroupLease | GroupLeases:
    """The job's lease: the broker's, or one at each of several."""
    owner = lease_owner(settings)
    if not client.is_cluster():
        return job_lease(client, settings.group, owner, settings.lease_ms)
    return GroupLeases(
        client.brokers,
        lambda name: job_lease(client.broker(name), settings.group, owner, settings.lease_ms),
        outage_timeout_s=OUTAGE_TIMEOUT_S,
        refused_s=settings.lease_ms / 1000,
    )


def lease_owner(settings: ConsumeSettings) -> LeaseOwner:
    """This process with this checkpoint, as the broker's lease names it."""
    directory = settings.checkpoint_of("group").parent / "lease"
    checkpoint = StreamCheckpoint(directory).start(lambda: {"owner": uuid.uuid4().hex})
    return LeaseOwner.here(str(checkpoint["owner"]))


@contextmanager
def sole_writer(ledger: LedgerLocation, tables: tuple[Table, ...]) -> Iterator[list[WriterLock]]:
    """Holds the locks of a local ledger's tables; a catalog excludes writers by itself."""
    locks: list[WriterLock] = []
    try:
        for lock in ledger.writer_locks(tables):
            lock.acquire()
            locks.append(lock)
        yield locks
    finally:
        for lock in locks:
            lock.release()


def name_jvm(locks: list[WriterLock], spark: SparkSession) -> None:
    """Writes the session's JVM into the locks, so that nobody writes while it outlives this process."""
    process = jvm_of(spark)
    if process is not None:
        for lock in locks:
            lock.name_jvm(process.pid)
