"""Two drivers of one consumer group in one process, one of them held where it hurts.

Owns the building of a group job with a lease of its own, whatever other driver the group has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.group.job import GroupJob
from jobs.redelivery.retry_policy import DEFAULT_MAX_RECONSUME_TIMES, RetryPolicy
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.job_lease import job_lease
from jobs.runtime.lease_owner import LeaseOwner
from jobs.runtime.started_stream import StartedStream
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from tests.support.waiting import wait_until

WAIT_S = 240.0
_TTL_MS = 600_000
"""Long enough that no renewal comes in between: a test takes a lease away by releasing it."""


class Driver:
    """A group job that runs until it is stopped or fails.

    Args:
        spark: the session.
        client: the broker.
        settings: the group's settings; the checkpoint is the driver's own.
        checkpoint: the driver's checkpoints.
        before_ledger_commit, now: see GroupJob.
        ttl_ms, outage_timeout_s: of the driver's lease.
    """

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        settings: ConsumeSettings,
        checkpoint: Path,
        before_ledger_commit: Callable[[int], None] = lambda batch_id: None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        ttl_ms: int = _TTL_MS,
        outage_timeout_s: float = 5.0,
    ) -> None:
        self._client = client
        self._group = settings.group
        self.owner = LeaseOwner.here(checkpoint.name)
        self.lease = job_lease(client, settings.group, self.owner, ttl_ms, outage_timeout_s=outage_timeout_s)
        policy = RetryPolicy.of("1s", [1_000], DEFAULT_MAX_RECONSUME_TIMES)
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
            now=now,
        )
        try:
            self.stream = StartedStream(self.job.start)
        except Exception:
            self.lease.release()
            raise

    def lose_lease(self) -> None:
        """The broker takes the lease for run out; the driver does not know yet."""
        self._client.release_lease(self._group, str(self.owner))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits while the driver's query goes on."""

        def is_so() -> bool:
            assert self.stream.goes_on(), self.stream.failure()
            return condition()

        wait_until(is_so, WAIT_S, "the driver did not get there in time")

    def await_end(self) -> str:
        """Waits until the query has failed and returns why."""
        wait_until(lambda: not self.stream.goes_on(), WAIT_S, "the driver goes on")
        return str(self.stream.failure())

    def stop(self) -> None:
        """Ends the driver in order."""
        self.stream.stop()
        self.lease.release()
