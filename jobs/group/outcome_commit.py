"""How a batch's outcomes get into the ledger: by this driver, while the group is its own.

Owns the last look at the lease, and which of Delta's transactions the append is.

Invariants: nothing is evaluated between that look and the append but the outcomes themselves.

Threads: the group job's.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_rows_once
from delta_tables.ledger.location import LedgerLocation
from delta_tables.task_rows import TaskRows
from jobs.group.fence import GroupFence
from jobs.group.named_batch import NamedBatch
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases


class OutcomeCommit:
    """Appends one group's outcomes, a batch at a time.

    Args:
        spark: the session of their frames.
        ledger: where they go.
        lease: the broker's lease on the group; None in broadcast mode.
        fence: takes the rows of the newest lease only; None in broadcast mode.
        before: called with the batch id between the last look at the lease and the append.
    """

    def __init__(
        self,
        spark: SparkSession,
        ledger: LedgerLocation,
        lease: GroupLease | GroupLeases | None,
        fence: GroupFence | None,
        before: Callable[[int], None],
    ) -> None:
        self._spark = spark
        self._ledger = ledger
        self._lease = lease
        self._fence = fence
        self._before = before

    def append(self, outcomes: pa.Table | TaskRows, batch: NamedBatch) -> None:
        """Appends the outcomes of a batch, all or none.

        Args:
            outcomes: rows of `deliveries`; tasks that make them call the handler, once.
            batch: whose they are.

        Raises:
            LakeMQError: LEASE_CONFLICT, another driver has the group.
        """
        if self._lease is not None:
            self._lease.check()
        self._before(batch.batch_id)
        if self._fence is not None:
            self._fence.append_outcomes(outcomes, batch.batch_id)
        else:
            where = (self._ledger, DELIVERIES)
            app_id, version = batch.application, batch.batch_id
            append_rows_once(outcomes, *where, app_id=app_id, version=version, spark=self._spark)
