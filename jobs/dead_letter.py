"""The dead_letter job: what is given up goes to `%DLQ%<group>` and to `dead_letters`, each once.

Owns the stream from `deliveries` (verdict DEAD).

Invariants: the message is on the DLQ topic before its row is in the table, so a row is proof; a driver killed
between the two sends the same rows under the same keys again. Rows the table has are passed over, so a
rebuilt checkpoint repeats none.
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_tables.dead_letters import DEAD_LETTERS, from_deliveries
from delta_tables.deliveries import DEAD
from jobs.group.fence import GroupFence
from jobs.group.landed_rows import without_landed
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.redelivery.original_position import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN
from jobs.redelivery.property_limit import fits_in_sql
from jobs.redelivery.row_messages import POSITION_SQL, carried_properties, lineage, messages_for, send_once
from store_native.names import dlq_topic

_ADDED = {DLQ_ORIGIN_TOPIC: "topic", DLQ_ORIGIN_MESSAGE_ID: "message_id", ORIGIN: POSITION_SQL}


class DeadLetterJob(LedgerConsumer):
    """One group's dead_letter stream."""

    name = "dead_letter"
    kind = f"verdict = '{DEAD}'"
    oldest_unfinished = "SELECT min(given_up_at) AS oldest FROM pending_dead_letters"

    @cached_property
    def _fence(self) -> GroupFence:
        return self._fence_of(DEAD_LETTERS)

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends what was given up, then writes its rows."""
        self._fence.take()  # before the table is queried for what it has
        # The rows' own keys are looked up before the write: an append that read the table would conflict
        # with every other group's. `new` is evaluated twice below, with the same result.
        new = without_landed(rows, self._spark, self._settings.ledger, DEAD_LETTERS, self._settings.group)
        send_once(dead_messages(new, self._settings.group), self._endpoint, purpose="dlq")
        self._fence.append(from_deliveries(new).coalesce(1), batch_id)


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
