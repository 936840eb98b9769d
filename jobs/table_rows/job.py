"""The stream of one table's rows: what verdicts write goes to a user's Delta table, each row once.

Owns the stream from `deliveries` (rows that write) to the table, `written_rows` and, of refusals,
`refused_sends`.

Invariants: a batch of the group job is one commit of the table's, a transaction of Delta's whose version is
the batch's number; so whoever writes it again, after whatever crash, with whatever checkpoint, or from
whatever other driver, finds it written. Batches are written in their order. A table that is away or refuses
holds up its own rows, not the group, its messages or other tables.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from delta_tables.ledger.conflicts import is_lost_commit
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.user_tables.user_table import UserTable
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.frames.spark_failure import failure_of
from jobs.group.fence import GroupFence
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.group.map_arrow import map_in_arrow
from jobs.group.worker_death import is_worker_death
from jobs.outbox.group_batches import GroupBatch, group_batches
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.hold_up import LEFT_OUT_S, HoldUp
from jobs.settings import ConsumeSettings
from jobs.table_rows.batch_rows import BatchRows, of_batch, of_batches
from jobs.table_rows.noted_table import noted_table
from jobs.table_rows.waiting_tables import STREAM
from jobs.table_rows.write_task import WriteTask
from lakemq.client.errors import may_pass
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import LakeMQError, from_code

PASS_S = 10.0
"""How long batches are written before what was written is recorded."""
_ROWS_OF_A_FILE = 50_000
_AT_A_TIME = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
"""Rows that pass from Spark to Python together: each may be of some MiB."""


class TableRowsJob(LedgerConsumer):
    """One group's stream of rows to one table."""

    kind = "writes > 0"
    # Of any table: what was written to this one is known.
    oldest_unfinished = (
        "SELECT min(decided_at) AS oldest "
        "FROM (SELECT * FROM pending_sends WHERE waiting_rows > 0) AS writing"
    )
    # Delta cuts inside a commit where it counts files (1,000 by default): a batch of the group comes whole.
    reading: ClassVar[Mapping[str, str]] = {"maxFilesPerTrigger": str((1 << 31) - 1)}

    def __init__(
        self,
        spark: SparkSession,
        settings: ConsumeSettings,
        endpoint: str,
        gate: BatchGate,
        lease: GroupLease | GroupLeases,
        table: UserTable,
    ) -> None:
        """Puts the job together without starting it."""
        self.name = f"{STREAM}{table.name}"
        super().__init__(spark, settings, endpoint, gate, lease)
        self._table = table
        self._table_id = ""
        self._commits = 0
        self._said = ""

    @cached_property
    def hold_up(self) -> HoldUp:
        """What holds up the rows, if anything does."""
        what = f"what verdicts of {self._settings.group} write to {self._table.name}"
        return HoldUp(self._settings.group, what=what, until="the table takes it")

    @cached_property
    def _written(self) -> GroupFence:
        return self._fence_of(WRITTEN_ROWS, self.name)

    @cached_property
    def _refused(self) -> GroupFence:
        return self._fence_of(REFUSED_SENDS, self.name)

    def decide_start(self) -> dict[str, str]:
        """Says where the stream begins, and which table its name stands for.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, it stood for another one; TABLE_NOT_EXIST.
        """
        self._table_id = noted_table(self._checkpoint.directory, self._table, self._spark)
        return super().decide_start()

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Writes the rows for the table, and records it: in passes, until none of them waits.

        Raises:
            JobStopped: The job stops, and something waits still.
            LakeMQError: A run over what is there now cannot write it all.
        """
        self._written.take()  # before the table is queried for what it has
        settings = self._settings
        kept = BatchRows(self._spark, settings.ledger, settings.group, self._table.name, rows)
        for name, value in _AT_A_TIME.items():
            rows.sparkSession.conf.set(name, value)
        batches = group_batches(kept.all)
        written = kept.written(batches)
        left = [batch for batch in batches if batch not in written]
        while left:
            waiting = kept.waiting()
            done, error = self._pass(waiting, left)
            if done:
                self._record(of_batches(waiting, done))
                left = left[len(done) :]
            if error is None:
                self._said = ""
                self.hold_up.end()
                self._gate.rest(0)
                continue
            self._refuse(error, of_batch(waiting, left[0]))
            pause_s = self.hold_up.meet(error)
            if settings.available_now and (not may_pass(error) or self.hold_up.seconds >= LEFT_OUT_S):
                raise error
            self._gate.rest(pause_s)
        self.hold_up.end()

    def _pass(
        self, waiting: DataFrame, batches: Sequence[GroupBatch]
    ) -> tuple[list[GroupBatch], LakeMQError | None]:
        """Writes batches in their order; returns those the table has, and why it lacks the next."""
        until = time.monotonic() + PASS_S
        done: list[GroupBatch] = []
        for batch in batches:
            self._lease.check()
            try:
                self._write(of_batch(waiting, batch), batch)
            except LakeMQError as error:
                return done, error
            except Exception as error:
                if is_worker_death(error):
                    raise
                return done, _refusal(error)
            done.append(batch)
            if time.monotonic() >= until:
                break
        return done, None

    def _write(self, rows: DataFrame, batch: GroupBatch) -> None:
        query, number = batch
        self._check_table()
        columns = self._table.columns(self._spark)
        count = rows.count()
        if not count:  # all given up
            return
        schema = StructType.fromJson(columns.spark_schema)
        task = WriteTask(columns, self._table.name)
        made = map_in_arrow(rows.select("row_json"), task, schema)
        files = min(-(-count // _ROWS_OF_A_FILE), self._spark.sparkContext.defaultParallelism)
        # A repeat is left out by Delta; so is what an older driver writes behind this one.
        self._table.append(made.coalesce(files), app_id=self._application(query), version=number)
        self._check_table()  # of one that was moved away meanwhile Delta has made another at its place

    def _check_table(self) -> None:
        """Looks whether the table is the one that its name stands for.

        Raises:
            InvalidRequest: TABLE_NOT_EXIST, it is not.
        """
        if self._table.table_id(self._spark) != self._table_id:
            place, name = self._table.place, self._table.name
            detail = f"the table at {place} is not {name}, whose id is {self._table_id}: it has been moved"
            raise from_code("TABLE_NOT_EXIST", detail)

    def _application(self, query: str) -> str:
        """What the table knows the batches of a query by."""
        return f"lakemq/{self._settings.group}/{self._table.name}/{query}"

    def _record(self, rows: DataFrame) -> None:
        recorded = rows.withColumns(
            {"table_name": F.lit(self._table.name), "written_at": F.lit(datetime.now(UTC))}
        )
        self._commits += 1
        self._written.append(recorded.select(*WRITTEN_ROWS.column_names), self._commits)

    def _refuse(self, error: LakeMQError, rows: DataFrame) -> None:
        """Records a refusal that is another than the last, at the first row that it holds up."""
        if may_pass(error) or str(error) == self._said:
            return
        first = rows.orderBy(*("queue_id", "queue_offset", "number")).first()
        self._said = str(error)
        if first is None:
            return
        made = {
            **first.asDict(),
            "sent_topic": None,
            "sent_message_id": None,
            "sent_table": self._table.name,
            "code": error.code,
            "error": error.detail,
            "refused_at": datetime.now(UTC),
        }
        self._refused.take()
        self._commits += 1
        row = tuple(made[name] for name in REFUSED_SENDS.column_names)
        self._refused.append(self._refused.frame([row]), self._commits)


def _refusal(error: Exception) -> LakeMQError:
    """What Spark says of a write; waiting ends only what others do to the table meanwhile."""
    said = failure_of(error).error_text or type(error).__name__
    if is_lost_commit(error):
        return from_code("SERVICE_NOT_AVAILABLE", " ".join(said.split()))
    return from_code("TABLE_REFUSED", " ".join(said.split()))
