"""The batches of the group job that rows of `deliveries` are of.

Owns their order: each is there whole or not at all, by one commit, and they are worked off as they came.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GroupBatch = tuple[str, int]
"""The query and its batch."""


def group_batches(rows: DataFrame) -> list[GroupBatch]:
    """Query id and number of each batch, the oldest first."""
    found = rows.groupBy("query_id", "batch_id").agg(F.min("finished_at").alias("at")).collect()
    return [(batch.query_id, batch.batch_id) for batch in sorted(found, key=lambda batch: batch.at)]
