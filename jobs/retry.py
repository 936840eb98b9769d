"""The retry job: what failed and has attempts left goes back to the broker, delayed, once.

Owns the stream from `deliveries` (verdict RETRY) to `%RETRY%<group>`, which the group job reads.

Invariants: a repeated batch is sent under the same keys, which the broker stores once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from delta_tables.deliveries import RETRY
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.redelivery.retried_messages import retried_messages
from jobs.redelivery.row_messages import send_once


class RetryJob(LedgerConsumer):
    """One group's retry stream."""

    name = "retry"
    kind = f"verdict = '{RETRY}'"
    oldest_unfinished = "SELECT min(failed_at) AS oldest FROM pending_retries"

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends the failed attempts' messages."""
        send_once(retried_messages(rows, self._settings.group), self._endpoint, purpose="retry")
