"""Failed attempts as the messages that come back.

Owns what a retried message carries of where it comes from.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from jobs.redelivery.original_position import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from jobs.redelivery.row_messages import POSITION_SQL, carried_properties, messages_for
from store_native.names import retry_topic
from structured_streaming.sink.columns import DUE_AT

_ADDED = {
    RETRY_TOPIC: "topic",
    ORIGIN_MESSAGE_ID: "message_id",
    ORIGIN: POSITION_SQL,
    # One that was put off had no call: it has the time of that.
    FIRST_ATTEMPT_PROPERTY: (
        f"coalesce(properties['{FIRST_ATTEMPT_PROPERTY}'],"
        " CAST(unix_millis(coalesce(started_at, finished_at)) AS STRING))"
    ),
}


def retried_messages(failed: DataFrame, group: str) -> DataFrame:
    """Turns failed attempts into the messages that come back.

    The id, keys, tags and body stay; the properties say where the message comes from, so that the
    next attempt is keyed by the original position. Sent late, they wait what is left of their delay.
    """
    marked = failed.withColumn("properties", F.expr(carried_properties(_ADDED)))
    return messages_for(
        retry_topic(group),
        marked,
        "attempt AS reconsume_times",
        "delay_level",
        f"next_attempt_at AS {DUE_AT}",
    )
