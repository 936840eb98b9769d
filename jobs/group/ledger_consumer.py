"""A stream over the ledger's rows of one kind, beside the group job.

Owns how such a stream begins, passes the gate and is named.

Invariants: its start is decided before any stream of the group writes, so it misses no row. The reactions
and the outbox job say what is done with the rows; `consume` starts them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger_query import select
from delta_tables.table import Table
from jobs.group.fence import GroupFence
from jobs.group.ledger_stream import decide_start
from jobs.group.worker_death import is_worker_death
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.settings import ConsumeSettings
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases

_log = logging.getLogger(__name__)

_MOST_DEATHS = 3
"""So often a worker may die in one batch, as by the kernel's hand where memory is short, and no more."""


class LedgerConsumer(ABC):
    """One group's stream over `deliveries`.

    Attributes:
        name: of the stream and of its checkpoint.
        kind: SQL for the rows it works off.
        oldest_unfinished: SQL for the time of the oldest row not yet worked off, as the column oldest;
            a condition on the group is added.
        comes_back: whether the group itself reads what is sent for the rows.
        reading: further options of Delta's source.
    """

    name: str
    kind: ClassVar[str]
    oldest_unfinished: ClassVar[str]
    comes_back: ClassVar[bool] = False
    reading: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        spark: SparkSession,
        settings: ConsumeSettings,
        endpoint: str,
        gate: BatchGate,
        lease: GroupLease | GroupLeases,
    ) -> None:
        """Puts the job together without starting it."""
        self._spark = spark
        self._settings = settings
        self._endpoint = endpoint
        self._gate = gate
        self._lease = lease
        self._checkpoint = StreamCheckpoint(settings.checkpoint_of(self.name))

    def decide_start(self) -> dict[str, str]:
        """Says where the stream begins; called before any stream of the group writes."""
        settings = self._settings
        return decide_start(self._spark, settings.ledger, DELIVERIES, self._checkpoint, self._unfinished)

    def has_unfinished(self) -> bool:
        """Whether rows wait that are not worked off yet, or whose work nobody has seen the end of."""
        ((oldest,),) = select(self._settings.ledger, self._unfinished, self._spark)
        return oldest is not None

    def start(self) -> StreamingQuery:
        """Starts the stream."""
        settings = self._settings
        rows = settings.ledger.read_stream(self._spark, DELIVERIES, {**self.decide_start(), **self.reading})
        return (
            rows.where(f"consumer_group = '{settings.group}' AND {self.kind}")
            .writeStream.queryName(f"{settings.group} {self.name}")
            .foreachBatch(self._process)
            .option("checkpointLocation", self._checkpoint.prepare())
            .trigger(**settings.spark_trigger)
            .start()
        )

    @property
    def _unfinished(self) -> str:
        return f"{self.oldest_unfinished} WHERE consumer_group = '{self._settings.group}'"

    def _fence_of(self, table: Table, stream: str = "") -> GroupFence:
        """The fence of a table that the stream writes, in a session of its own.

        Args:
            table: the table.
            stream: the stream's name, where several of the group write the table.
        """
        settings = self._settings
        spark = self._spark.newSession()
        return GroupFence(spark, settings.ledger, table, settings.group, self._lease, stream=stream)

    @abstractmethod
    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Works off a batch's rows; called inside foreachBatch.

        Again after a crash before its commit, and where one of its workers died: what the first call did
        is found done.
        """

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        with self._gate.batch():
            # Every commit of the ledger makes a batch here; most hold no row of this kind.
            if not rows.isEmpty():
                self._work_off(rows, batch_id)

    def _work_off(self, rows: DataFrame, batch_id: int) -> None:
        for deaths in range(1, _MOST_DEATHS + 1):
            self._lease.check()
            try:
                self.process_batch(rows, batch_id)
            except Exception as error:
                if deaths == _MOST_DEATHS or not is_worker_death(error):
                    raise
                text = "a worker of the stream %r of group %s died: its batch %s is worked off again"
                _log.warning(text, self.name, self._settings.group, batch_id)
            else:
                return
