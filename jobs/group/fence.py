"""The fence between two drivers of one group: whose appends a table takes.

Owns the group's application id at a Delta table and its versions: the epoch of the driver's lease in the
upper half, the number of its append in the lower.

Invariants: once a driver has taken the fence, the table takes nothing more from a driver that took it
before, wherever that one is between its last look at the lease and its commit: Delta leaves out the
older version, or ends that commit as overtaken. So the fence is taken before anything is read that decides
what to append.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_tables.idempotent import append_once, append_rows_once, note_version
from delta_tables.ledger.location import LedgerLocation
from delta_tables.table import Table
from delta_tables.task_rows import TaskRows
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import from_code

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_BATCH_BITS = 32
_LARGEST_EPOCH = (1 << 31) - 1


class GroupFence:
    """One driver's place in a group's appends to one table."""

    def __init__(
        self,
        spark: SparkSession,
        ledger: LedgerLocation,
        table: Table,
        group: str,
        lease: GroupLease | GroupLeases,
        *,
        stream: str = "",
        minutes: Callable[[], int] = lambda: int(time.time() / 60),
    ) -> None:
        """Describes the fence; `take` sets it.

        Args:
            spark: a session in which nobody else commits meanwhile, see `append_once`.
            ledger: where the table is.
            table: the table.
            group: the group.
            lease: the group's lease, held.
            stream: names the stream where several of a driver append to the table.
            minutes: the time in whole minutes, for an epoch above all that a lost broker granted.
        """
        self._spark = spark
        self._ledger = ledger
        self._table = table
        self._group = group
        self._lease = lease
        self._application = application(group) + (f"/{stream}" if stream else "")
        self._minutes = minutes
        self._epoch: int | None = None

    def take(self) -> None:
        """Shuts out every driver before this one; the first call does it, with an empty commit.

        A table that knows a higher epoch although the lease is ours has outlived its broker's memory
        (a store made anew, an older copy): the epoch is then raised above it.

        Raises:
            LakeMQError: LEASE_CONFLICT when the group is another job's by now.
        """
        if self._epoch is not None:
            return
        epoch = self._lease.epoch
        where = (self._spark, self._ledger, self._table)
        while not note_version(*where, app_id=self._application, version=epoch << _BATCH_BITS):
            self._lease.confirm()
            _log.warning(
                "%s of %s knows a fencing epoch of %s from %s on, the broker grants a lower one: raised",
                *(self._table.name, self._ledger, self._group, epoch),
            )
            epoch = min(max(epoch + 1, self._minutes()), _LARGEST_EPOCH)
        self._epoch = epoch

    def frame(self, rows: list[tuple[Any, ...]]) -> DataFrame:
        """A few rows of the table as a frame."""
        return self._spark.createDataFrame(rows, self._table.ddl)

    def append(self, rows: DataFrame, batch_id: int) -> None:
        """Appends a batch's rows.

        Args:
            rows: the rows.
            batch_id: the batch; where one has several appends, a number that grows with each of the driver's.

        Raises:
            LakeMQError: LEASE_CONFLICT when another driver has taken the fence; nothing was appended.
        """
        self._append(batch_id, partial(append_once, rows))

    def append_outcomes(self, rows: pa.Table | TaskRows, batch_id: int) -> None:
        """Appends what a batch's tasks make, or the driver has.

        Args:
            rows: the rows.
            batch_id: the batch.

        Raises:
            LakeMQError: As `append`.
        """
        self._append(batch_id, partial(append_rows_once, rows, spark=self._spark))

    def _append(self, batch_id: int, append: Callable[..., bool]) -> None:
        assert self._epoch is not None, "the fence was not taken"
        version = self._epoch << _BATCH_BITS | (batch_id + 1)
        if not append(self._ledger, self._table, app_id=self._application, version=version):
            raise from_code(
                "LEASE_CONFLICT",
                f"{self._table.name} did not take batch {batch_id} of group {self._group}: another job "
                "drives the group since, and has handled or will handle its messages",
                group=self._group,
            )


def application(group: str) -> str:
    """What Delta knows a group's drivers by; those of a broadcast group, without a lease, by another."""
    return f"lakemq/{group}"
