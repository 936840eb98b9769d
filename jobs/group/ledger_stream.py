"""Where a stream over a ledger table begins, also after its checkpoint was lost.

Owns that decision.

Invariants: the beginning is decided once per checkpoint and remembered, since the exactly-once sink takes a
repeated batch for the same rows. A stream over a ledger with history begins at its oldest unfinished row,
not at the ledger's first.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.table import Table
from jobs.runtime.checkpoint import StreamCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCK_MARGIN = timedelta(minutes=10)


def decide_start(
    spark: SparkSession, ledger: LedgerLocation, table: Table, checkpoint: StreamCheckpoint, unfinished: str
) -> dict[str, str]:
    """Where a stream over a ledger table begins, as options of Delta's source.

    Called for all streams before any of them writes.

    Args:
        spark: the session.
        ledger: where the table is.
        table: the table.
        checkpoint: the stream's checkpoint; the answer is remembered in its start file.
        unfinished: SQL over the ledger's views for the time of the oldest row not yet worked off. A row's
            commit is not older than the row, but for the clocks of two machines; so the commits since
            that time, less a margin, hold all of them. What they hold besides has been worked off, and
            both jobs' rows are known by their keys where they arrive.
    """

    def decide() -> dict[str, str]:
        # Queried before the rows are: what is committed in between is then read.
        version = ledger.version(spark, table)
        if not select(ledger, f"SELECT 1 AS one FROM {table.name} LIMIT 1", spark):
            # Without a version Delta's source would begin with a snapshot, for which it works out the
            # table's state, sorts it and caches it in three Spark jobs, beside the group's first batch.
            return {"startingVersion": str(version)}
        ((oldest,),) = select(ledger, unfinished, spark)
        if oldest is None:
            # Not "latest": that would be resolved later, when the group job may have written already.
            return {"startingVersion": str(version)}
        # Without its zone it would be a time of the session's.
        return {"startingTimestamp": (oldest - _CLOCK_MARGIN).astimezone(UTC).isoformat(" ", "microseconds")}

    return checkpoint.start(decide)
