"""The outbox job: what verdicts send goes to its topics, each message once.

Owns the stream from `deliveries` (rows that send) to the users' topics, `sent_messages` and `refused_sends`.

Invariants: a message is stored before its row is in the table, so a row is proof; a driver killed between the
two sends the same under the same keys again. A batch is sent in passes, and what a pass sent is recorded
whatever ended it. The messages of one queue's rows are sent in its order, batch after batch: what a broker
refuses, or one that is away, holds up what is sent behind it, not the group.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERY_KEY
from delta_tables.ledger_query import select
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from jobs.group.fence import GroupFence
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.group.map_arrow import map_in_arrow
from jobs.outbox.group_batches import group_batches
from jobs.outbox.lane_stop import LaneStop, LaneStops
from jobs.outbox.message_states import MessageStates
from jobs.outbox.send_task import SendTask
from jobs.runtime.hold_up import LEFT_OUT_S, HoldUp
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError, Unavailable
from structured_streaming import options
from structured_streaming.option_names import with_environment
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import RETRY_TIMEOUT_MS
from structured_streaming.sink.fixed_brokers import with_brokers

NAME = "outbox"

_LANES = 4
"""Rows of one queue are in one lane, and sent one after the other; lanes are sent at the same time."""
_OF_A_LANE = (12, 6, 2, 0)
"""By lane a number that Spark's hash puts into the partition of that number, so that each lane is a task."""
_ROWS_AT_A_TIME = "500"
"""Rows that pass from Spark to Python together: each may send some MiB."""
_PATIENCE_MS = 10_000
"""How long a task waits for a broker, longer than a restart: it has a core that others need."""
_ROWS_PER_REQUEST = "500"
"""Messages of a request, which a task holds until it is whole; each may be of some MiB."""
_ASK_TIMEOUT_S = 5.0
_ORDER = ("query_number", "batch_id", "lane", *DELIVERY_KEY[1:])


class OutboxJob(LedgerConsumer):
    """One group's outbox stream."""

    name = NAME
    kind = "sends > 0"
    oldest_unfinished = (
        "SELECT min(decided_at) AS oldest FROM (SELECT * FROM pending_sends WHERE waiting > 0) AS sending"
    )
    # Delta cuts inside a commit where it counts files (1,000 by default): a batch of the group comes whole.
    reading: ClassVar[Mapping[str, str]] = {"maxFilesPerTrigger": str((1 << 31) - 1)}

    _options: WriteOptions | None = None
    _commits = 0
    _recorded: frozenset[LaneStop] = frozenset()

    @cached_property
    def hold_up(self) -> HoldUp:
        """What holds up what is sent, if anything does."""
        return HoldUp(self._settings.group)

    @cached_property
    def _sent(self) -> GroupFence:
        return self._fence_of(SENT_MESSAGES)

    @cached_property
    def _refused(self) -> GroupFence:
        return self._fence_of(REFUSED_SENDS)

    def decide_start(self) -> dict[str, str]:
        """Says where the stream begins, and whom it sends to where that is known."""
        self._find_brokers()
        return super().decide_start()

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends the rows' messages, and writes what was sent: in passes, until nothing of them waits.

        Raises:
            JobStopped: The job stops, and something waits still.
            LakeMQError: A run over what is there now cannot send it all.
        """
        self._sent.take()  # before the table is queried for what it has
        batches = group_batches(rows)
        queries = list(dict.fromkeys(query for query, _ in batches))
        states = MessageStates(self._spark, self._settings.ledger, self._settings.group, rows, batches)
        rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS_AT_A_TIME)
        while True:
            error = self._absence()
            if error is None:
                stops = self._pass(states.marked(), queries)
                if not stops:
                    self.hold_up.end()
                    return
                error = self._error_of(stops)
            if error is None:  # a pass was over, more of them follow
                self.hold_up.end()
                self._gate.rest(0)
                continue
            pause_s = self.hold_up.meet(error)
            if self._settings.available_now and (not may_pass(error) or self._has_waited):
                raise error
            self._gate.rest(pause_s)

    def _pass(self, rows: DataFrame, queries: Sequence[str]) -> list[LaneStop]:
        """Sends what waits and records it; returns what ended lanes before their end."""
        assert self._options is not None, "the brokers are known"
        stops = LaneStops(self._spark)
        task = SendTask(self._settings.group, self._options, stops)
        sent = map_in_arrow(in_lanes(rows, queries), task, SENT_MESSAGES.ddl)
        self._commits += 1
        # Evaluated again on a conflict, it asks for the same and stores nothing.
        self._sent.append(sent, self._commits)
        return stops.found

    def _error_of(self, stops: Sequence[LaneStop]) -> LakeMQError | None:
        """Why lanes cannot go on now, a refusal first; refusals are recorded."""
        refused = frozenset(stop for stop in stops if stop.why == "refused")
        if refused - self._recorded:
            self._record(refused - self._recorded)
        self._recorded = refused
        return None if stops[0].why == "time" else stops[0].error

    def _record(self, stops: frozenset[LaneStop]) -> None:
        now = datetime.now(UTC)
        made = [
            {**dict(stop.message), "code": stop.code, "error": stop.detail, "refused_at": now}
            for stop in stops
        ]
        rows = [tuple(row.get(name) for name in REFUSED_SENDS.column_names) for row in made]
        self._refused.take()
        self._commits += 1
        self._refused.append(self._refused.frame(rows), self._commits)

    @property
    def _has_waited(self) -> bool:
        several = self._options is None or len(self._options.brokers) > 1
        return self.hold_up.seconds >= (LEFT_OUT_S if several else RETRY_TIMEOUT_MS / 1000)

    def _absence(self) -> LakeMQError | None:
        """Whom a pass would wait for in vain, asked on the driver: a task that waits has a core."""
        try:
            self._find_brokers(must=True)
            assert self._options is not None, "they are found"
            brokers = self._options.brokers
            if len(brokers) < 2 and self.hold_up.seconds == 0:
                return None
            with Client(self._endpoint, timeout_s=_ASK_TIMEOUT_S, retries=0, routed=bool(brokers)) as client:
                named = {name: client.broker(name) for name in brokers} or {client.endpoint: client}
                away = [name for name, broker in named.items() if not broker.ready()]
        except LakeMQError as error:
            if not may_pass(error):
                raise
            return error
        return Unavailable("SERVICE_NOT_AVAILABLE", f"{', '.join(away)} does not answer") if away else None

    def _find_brokers(self, *, must: bool = False) -> None:
        """Decides whom it sends to: for the checkpoint's life, once all of several brokers have answered.

        Raises:
            Unavailable: It must, and one of them does not answer.
            InvalidRequest: It cannot be known.
        """
        if self._options is not None:
            return
        given = {
            "endpoint": self._endpoint,
            "checkpointLocation": str(self._checkpoint.directory),
            "rowsPerRequest": _ROWS_PER_REQUEST,
        }
        asked = replace(options.parse_write(with_environment(given)), retry_timeout_ms=0)
        try:
            # A batch that sent something has noted them.
            found = with_brokers(asked, given, streaming=True, has_sent=False)
        except LakeMQError as error:
            if must or not may_pass(error):
                raise
            return
        self._options = replace(found, retry_timeout_ms=_PATIENCE_MS)


def in_lanes(rows: DataFrame, queries: Sequence[str]) -> DataFrame:
    """Cuts rows of `deliveries` in the same way each time, in the order in which they are sent.

    Args:
        rows: the rows.
        queries: the ids of the queries that wrote them, the oldest first.
    """
    lane = F.expr(f"CAST(pmod(crc32(concat_ws('/', topic, broker_name, queue_id)), {_LANES}) AS INT)")
    number = F.array_position(F.array(*map(F.lit, queries)), F.col("query_id"))
    cut = rows.withColumn("lane", lane).withColumn("query_number", number)
    task = F.element_at(F.array(*map(F.lit, _OF_A_LANE)), F.col("lane") + 1)
    cut = cut.repartition(_LANES, task).sortWithinPartitions(*_ORDER)
    named = ("query_id", "message_id", "outbox", "sent_numbers", "given_up_numbers")
    return cut.select("consumer_group", *_ORDER[1:], *named)


def is_needed(settings: ConsumeSettings, spark: SparkSession) -> bool:
    """Whether a run has, or may have, anything to send.

    A run that has not leaves no checkpoint: the next one that has would look for commits long deleted.
    """
    if settings.send_to:
        return True
    of_group = f"consumer_group = '{settings.group}' AND waiting > 0"
    text = f"SELECT count(*) AS waiting FROM pending_sends WHERE {of_group}"
    ((waiting,),) = select(settings.ledger, text, spark)
    if not waiting:
        shutil.rmtree(settings.checkpoint_of(NAME), ignore_errors=True)
    return bool(waiting)
