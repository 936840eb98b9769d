"""The batches of the group job that rows of `deliveries` are of.

Owns their order: each is there whole or not at all, by one commit, and they are worked off as they came.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GroupBatch = tuple[str, int]
"""The query and its batch."""


def group_batches(rows: DataFrame) -> list[GroupBatch]:
    """Query id and number of each batch: queries by their oldest row, batches of one by their numbers.

    Times are of the workers' clocks, and one that is set back must not turn the batches of a query round.
    """
    found = rows.groupBy("query_id", "batch_id").agg(F.min("finished_at").alias("at")).collect()
    began: dict[str, datetime] = {}
    for batch in found:
        began[batch.query_id] = min(batch.at, began.get(batch.query_id, batch.at))
    batches = [(batch.query_id, batch.batch_id) for batch in found]
    return sorted(batches, key=lambda batch: (began[batch[0]], *batch))
