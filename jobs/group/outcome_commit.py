"""How a batch's outcomes get into the ledger: by this driver, while the group is its own.

Owns the last look at the lease, and which of Delta's transactions the append is.

Invariants: nothing is evaluated between that look and the append but the outcomes themselves.

Threads: the group job's.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_once
from delta_tables.ledger.location import LedgerLocation
from jobs.group.fence import GroupFence
from jobs.group.named_batch import NamedBatch
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases


class OutcomeCommit:
    """Appends one group's outcomes, a batch at a time.

    Args:
        ledger: where they go.
        lease: the broker's lease on the group; None in broadcast mode.
        fence: takes the rows of the newest lease only; None in broadcast mode.
        before: called with the batch id between the last look at the lease and the append.
    """

    def __init__(
        self,
        ledger: LedgerLocation,
        lease: GroupLease | GroupLeases | None,
        fence: GroupFence | None,
        before: Callable[[int], None],
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._fence = fence
        self._before = before

    def append(self, outcomes: DataFrame, batch: NamedBatch, *, has_effects: bool) -> None:
        """Appends the outcomes of a batch, all or none.

        Args:
            outcomes: rows of `deliveries`.
            batch: whose they are.
            has_effects: evaluating them calls the handler.

        Raises:
            LakeMQError: LEASE_CONFLICT, another driver has the group.
        """
        if self._lease is not None:
            self._lease.check()
        self._before(batch.batch_id)
        if self._fence is not None:
            self._fence.append(outcomes, batch.batch_id, has_effects=has_effects)
        else:
            app_id, version = batch.application, batch.batch_id
            append_once(outcomes, self._ledger, DELIVERIES, app_id=app_id, version=version, has_effects=True)
