"""Two drivers of one consumer group in one process, one of them held where it hurts.

Owns the building of a group job with a lease of its own, whatever other driver the group has. Used by
tests of the fence between drivers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.batch_gate import BatchGate
from jobs.group_job import GroupJob
from jobs.group_lease import GroupLease
from jobs.lease_owner import LeaseOwner
from jobs.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings
from lakemq.client import Client

WAIT_S = 120.0
_TTL_MS = 600_000
"""Long enough that no renewal comes in between: a test takes a lease away by releasing it."""


class Driver:
    """A group job that runs until it is stopped or fails.

    Args:
        spark: the session.
        client: the broker.
        settings: the group's settings; the checkpoint is the driver's own.
        checkpoint: the driver's checkpoints.
        before_ledger_commit: see GroupJob.
    """

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        settings: ConsumeSettings,
        checkpoint: Path,
        before_ledger_commit: Callable[[int], None] = lambda batch_id: None,
    ) -> None:
        self._client = client
        self._group = settings.group
        self.owner = LeaseOwner.here(checkpoint.name)
        self.lease = GroupLease(client, settings.group, self.owner, _TTL_MS, patience_s=5)
        policy = RetryPolicy.of("1s", [1_000], settings.max_reconsume_times)
        self.committed = threading.Event()
        self.lease.acquire()
        self.job = GroupJob(
            spark.newSession(),  # a session runs one query of a name
            replace(settings, checkpoint=checkpoint),
            policy,
            client,
            BatchGate(),
            self.lease,
            before_ledger_commit=before_ledger_commit,
            after_ledger_commit=lambda batch_id: self.committed.set(),
        )
        self.query: StreamingQuery = self.job.start()

    def lose_lease(self) -> None:
        """The broker takes the lease for run out; the driver does not know yet."""
        self._client.release_lease(self._group, str(self.owner))

    def await_end(self) -> str:
        """Waits until the query has failed and returns why."""
        try:
            self.query.awaitTermination(int(WAIT_S))
        except StreamingQueryException as failure:
            return str(failure)
        return ""

    def stop(self) -> None:
        """Ends the driver in order."""
        self.query.stop()
        self.lease.release()
