"""Dead letters: what is given up goes to `%DLQ%<group>` and to `dead_letters`, each once.

Owns the way there from rows of `deliveries` (verdict DEAD).

Invariants: the message is on the DLQ topic before its row is in the table, so a row is proof; a driver killed
between the two sends the same rows under the same keys again. Rows the table has are passed over, so a
rebuilt checkpoint repeats none.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.dead_letters import DEAD_LETTERS, from_deliveries
from jobs.group.fence import GroupFence
from jobs.group.landed_rows import without_landed
from jobs.redelivery.original_position import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN
from jobs.redelivery.property_limit import fits_in_sql
from jobs.redelivery.row_messages import POSITION_SQL, carried_properties, lineage, messages_for, send_once
from jobs.settings import ConsumeSettings
from store_native.names import dlq_topic

_ADDED = {DLQ_ORIGIN_TOPIC: "topic", DLQ_ORIGIN_MESSAGE_ID: "message_id", ORIGIN: POSITION_SQL}


def land(
    given_up: DataFrame,
    batch_id: int,
    settings: ConsumeSettings,
    endpoint: str,
    fence: GroupFence,
    spark: SparkSession,
) -> None:
    """Sends what was given up, then writes its rows.

    Args:
        given_up: DEAD rows of `deliveries`, all of the group.
        batch_id: of the stream they come in; a batch that runs again is written once.
        settings: the group's.
        endpoint: the broker's, or the name servers'.
        fence: of `dead_letters`, for the group.
        spark: the session, for a ledger in a catalog.

    Raises:
        Py4JJavaError: the broker refuses them or does not answer; the batch runs again.
        LakeMQError: LEASE_CONFLICT when another driver has taken the fence.
    """
    fence.take()  # before the table is queried for what it has
    # The rows' own keys are looked up before the write: an append that read the table would conflict
    # with every other group's. `new` is evaluated twice below, with the same result.
    new = without_landed(given_up, spark, settings.ledger, DEAD_LETTERS, settings.group)
    send_once(dead_messages(new, settings.group), endpoint, purpose="dlq")
    fence.append(from_deliveries(new).coalesce(1), batch_id)


def dead_messages(given_up: DataFrame, group: str) -> DataFrame:
    """Turns DEAD rows of `deliveries` into messages for the group's dead-letter topic.

    One whose properties leave no space for what is added goes without keys, tags and properties: they are
    in its row of `dead_letters`.
    """
    rows = given_up.withColumn("properties", F.expr(carried_properties(_ADDED)))
    rows = rows.withColumn("fits", F.expr(fits_in_sql("properties")))
    light = {
        "keys": F.expr("CASE WHEN fits THEN keys END"),
        "tags": F.expr("CASE WHEN fits THEN tags END"),
        "properties": F.expr(f"CASE WHEN fits THEN properties ELSE {lineage(_ADDED)} END"),
    }
    return messages_for(dlq_topic(group), rows.withColumns(light), "attempt - 1 AS reconsume_times")
