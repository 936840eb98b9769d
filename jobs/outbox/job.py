"""The outbox job: what verdicts send goes to its topics, each message once.

Owns the stream from `deliveries` (rows that send) to the users' topics and `sent_messages`.

Invariants: a message is stored before its row is in the table, so a row is proof; a driver killed between the
two sends the same under the same keys again. The messages of one queue's rows are sent in its order, batch
after batch. One of several brokers that is away holds up what is sent, not the group.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from delta_tables.deliveries import DELIVERY_KEY
from delta_tables.ledger_query import select
from delta_tables.sent_messages import SENT_MESSAGES
from jobs.group.fence import GroupFence
from jobs.group.landed_rows import without_landed
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.group.map_arrow import map_in_arrow
from jobs.outbox.send_task import SendTask
from jobs.runtime.batch_gate import BatchGate, JobStopped
from jobs.runtime.idle import LEFT_OUT_S
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import LakeMQError, Unavailable
from structured_streaming import options
from structured_streaming.option_names import with_environment
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import retry_until
from structured_streaming.sink.fixed_brokers import with_brokers

_log = logging.getLogger(__name__)

NAME = "outbox"

_LANES = 4
"""Rows of one queue are in one lane, and sent one after the other; lanes are sent at the same time."""
_ROWS_AT_A_TIME = "500"
"""Rows that pass from Spark to Python together: each may send some MiB."""
_PATIENCE_MS = 10_000
"""How long a task waits for one of several brokers, longer than a restart: it has a core that others need."""
_ROWS_PER_REQUEST = "500"
"""Messages of a request, which a task holds until it is whole; each may be of some MiB."""
_AS_LONG_AS_IT_TAKES_S = 366 * 86_400.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Before tasks try again at a broker that answers and takes nothing: its disk is full, it lacks a slave."""
_ASK_TIMEOUT_S = 5.0
_AWAY = ("errors.Unavailable:", "errors.OutcomeUnknown:", "errors.Closed:")
"""What Spark's text about a task names where a broker was away."""
_ORDER = ("query_id", "batch_id", "lane", *DELIVERY_KEY[1:])


class OutboxJob(LedgerConsumer):
    """One group's outbox stream."""

    name = NAME
    kind = "sends > 0"
    oldest_unfinished = "SELECT min(decided_at) AS oldest FROM pending_sends"

    def __init__(
        self,
        spark: SparkSession,
        settings: ConsumeSettings,
        endpoint: str,
        gate: BatchGate,
        lease: GroupLease | GroupLeases,
    ) -> None:
        """Puts the job together without starting it."""
        super().__init__(spark, settings, endpoint, gate, lease)
        self._fence = GroupFence(spark.newSession(), settings.ledger, SENT_MESSAGES, settings.group, lease)
        self._options: WriteOptions | None = None

    def start(self) -> StreamingQuery:
        """Starts the stream; its brokers are those that its checkpoint began with."""
        self._options = self._destination()
        return super().start()

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends the rows' messages, and writes what was sent."""
        self._fence.take()  # before the table is queried for what it has
        assert self._options is not None, "a batch runs in a stream that was started"
        new = self._without_sent(rows)
        new.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS_AT_A_TIME)
        task = SendTask(self._settings.group, self._options)
        sent = map_in_arrow(in_lanes(new), task, SENT_MESSAGES.ddl)
        brokers = self._options.brokers
        pause_s = _FIRST_PAUSE_S
        while True:
            if len(brokers) > 1:
                self._await_all(brokers)
            try:
                # Evaluated again, here or on a conflict, it asks for the same and stores nothing.
                self._fence.append(sent, batch_id)
            except Exception as error:
                if (
                    len(brokers) < 2
                    or self._settings.available_now
                    or not any(a in str(error) for a in _AWAY)
                ):
                    raise
                _log.warning("%s: %s", self._settings.group, _first_line(error))
                if self._gate.await_given_up(pause_s):
                    raise
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            return

    def _await_all(self, brokers: tuple[str, ...]) -> None:
        """Waits until all of several brokers serve, on the driver: a task that waits has a core.

        A run over what is there now waits for a restart, no longer: the next run sends what is left.

        Raises:
            JobStopped: The batch is given up.
            Unavailable: A run over what is there now has waited.
        """
        with Client(self._endpoint, timeout_s=_ASK_TIMEOUT_S, retries=0, routed=True) as client:

            def ask() -> None:
                if self._gate.is_given_up:
                    raise JobStopped(
                        "the job stopped while a broker was away; its messages wait in the ledger"
                    )
                away = [name for name in brokers if not client.broker(name).ready()]
                if away:
                    raise Unavailable("SERVICE_NOT_AVAILABLE", f"{', '.join(away)} does not answer")

            limit_s = LEFT_OUT_S if self._settings.available_now else _AS_LONG_AS_IT_TAKES_S
            retry_until(ask, limit_s, waits=self._say_waiting)

    def _say_waiting(self, error: LakeMQError) -> None:
        what = "what verdicts of %s send waits for it, the group goes on"
        _log.warning(f"%s: {what}", error.detail, self._settings.group)

    def _without_sent(self, rows: DataFrame) -> DataFrame:
        """Leaves out what was sent before: looked for only where some of the group job's batch was."""
        batches = rows.select("query_id", "batch_id").distinct().collect()
        queries = ", ".join(f"'{query}'" for query in {batch.query_id for batch in batches})
        numbers = [batch.batch_id for batch in batches]
        group, ledger = self._settings.group, self._settings.ledger
        asked = (
            f"SELECT count(*) AS found FROM sent_messages WHERE consumer_group = '{group}' "
            f"AND query_id IN ({queries}) AND batch_id BETWEEN {min(numbers)} AND {max(numbers)}"
        )
        ((found,),) = select(ledger, asked, self._spark)
        return without_landed(rows, self._spark, ledger, SENT_MESSAGES, group) if found else rows

    def _destination(self) -> WriteOptions:
        given = {
            "endpoint": self._endpoint,
            "checkpointLocation": str(self._checkpoint.directory),
            "rowsPerRequest": _ROWS_PER_REQUEST,
        }
        chosen = with_brokers(options.parse_write(with_environment(given)), given, streaming=True)
        several = len(chosen.brokers) > 1
        return replace(chosen, retry_timeout_ms=_PATIENCE_MS) if several else chosen


def in_lanes(rows: DataFrame) -> DataFrame:
    """Cuts rows of `deliveries` in the same way each time, in the order in which they are sent."""
    lane = F.expr(f"CAST(pmod(crc32(concat_ws('/', topic, broker_name, queue_id)), {_LANES}) AS INT)")
    cut = rows.withColumn("lane", lane).repartition(_LANES, "lane").sortWithinPartitions(*_ORDER)
    return cut.select("consumer_group", *_ORDER, "message_id", "outbox")


def is_needed(settings: ConsumeSettings, spark: SparkSession) -> bool:
    """Whether a run has, or may have, anything to send.

    A run that has not leaves no checkpoint: the next one that has would look for commits long deleted.
    """
    if settings.send_to:
        return True
    text = f"SELECT count(*) AS waiting FROM pending_sends WHERE consumer_group = '{settings.group}'"
    ((waiting,),) = select(settings.ledger, text, spark)
    if not waiting:
        shutil.rmtree(settings.checkpoint_of(NAME), ignore_errors=True)
    return bool(waiting)


def _first_line(error: Exception) -> str:
    """What a task says of its broker, out of Spark's stacks."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if any(away in line for away in _AWAY)), "a broker is away")
