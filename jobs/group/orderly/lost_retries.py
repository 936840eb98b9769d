"""Retries that should have come back and did not: the broker lost them, or they expired.

Owns which they are, and that they are sent again.

Invariants: an attempt that comes back twice is made once, so that sending one again that is only late does no
harm. Without it its lane would wait for ever.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY, RETRY
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from jobs.redelivery.retried_messages import retried_messages
from structured_streaming.sink.columns import DUE_AT

_log = logging.getLogger(__name__)

LATE = timedelta(minutes=10)
"""So long behind the time that it was due a retry counts as lost: the clocks of two machines differ less."""

_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT"


def send_lost_again(
    spark: SparkSession, ledger: LedgerLocation, group: str, endpoint: str, now: datetime
) -> int:
    """Sends the retries of a group that are late to its retry topic, without a delay.

    Args:
        spark: the session.
        ledger: the group's ledger.
        group: the group.
        endpoint: the broker.
        now: the time.

    Returns:
        How many they are.
    """
    columns = DELIVERY_KEY[1:]
    at = (now - LATE).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    late = select(
        ledger,
        f"SELECT {', '.join(columns)} FROM pending_retries "
        f"WHERE consumer_group = '{group}' AND next_attempt_at < CAST('{at}' AS TIMESTAMP)",
        spark,
    )
    if not late:
        return 0
    _log.warning("%s retries of group %s did not come back in time: they are sent again", len(late), group)
    chosen = F.broadcast(spark.createDataFrame(late, _TYPES))
    failed = ledger.read(spark, DELIVERIES).where(f"consumer_group = '{group}' AND verdict = '{RETRY}'")
    retried = retried_messages(failed.join(chosen, [*columns], "left_semi"), group)
    messages = retried.drop("delay_level", DUE_AT)
    messages.write.format("lakemq").mode("append").option("endpoint", endpoint).option(
        "brokerAway", "elsewhere"
    ).save()
    return len(late)
