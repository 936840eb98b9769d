"""The retry job: what failed and has attempts left goes back to the broker, delayed, once.

Owns the stream from `deliveries` (verdict RETRY) to `%RETRY%<group>`, which the group job reads.

Invariants: a repeated batch is sent under the same keys, which the broker stores once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from delta_tables.deliveries import RETRY
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.redelivery.original_position import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from jobs.redelivery.row_messages import POSITION_SQL, carried_properties, messages_for, send_once
from store_native.names import retry_topic

_ADDED = {
    RETRY_TOPIC: "topic",
    ORIGIN_MESSAGE_ID: "message_id",
    ORIGIN: POSITION_SQL,
    FIRST_ATTEMPT_PROPERTY: (
        f"coalesce(properties['{FIRST_ATTEMPT_PROPERTY}'], CAST(unix_millis(started_at) AS STRING))"
    ),
}


class RetryJob(LedgerConsumer):
    """One group's retry stream."""

    name = "retry"
    kind = f"verdict = '{RETRY}'"
    oldest_unfinished = "SELECT min(failed_at) AS oldest FROM pending_retries"

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends the failed attempts' messages."""
        send_once(retried_messages(rows, self._settings.group), self._endpoint, purpose="retry")


def retried_messages(failed: DataFrame, group: str) -> DataFrame:
    """Turns failed attempts into the messages that come back.

    The id, keys, tags and body stay; the properties say where the message comes from, so that the
    next attempt is keyed by the original position.
    """
    marked = failed.withColumn("properties", F.expr(carried_properties(_ADDED)))
    return messages_for(retry_topic(group), marked, "attempt AS reconsume_times", "delay_level")
