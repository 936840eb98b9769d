"""The tables that rows wait for which earlier runs of a group have decided on.

Owns the refusal of a start that would leave them waiting unseen, and the end of the checkpoints of tables
that a run leaves out and nothing waits for.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.ledger_query import select
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.settings import ConsumeSettings
from jobs.table_rows.noted_table import FILE
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "rows-"
"""What the name of a table's stream begins with."""
_OLDEST = (
    "SELECT min(decided_at) AS oldest FROM pending_sends "
    "WHERE consumer_group = '{group}' AND waiting_rows > 0"
)
_GIVEN_UP = (
    "SELECT topic, broker_name, queue_id, queue_offset, attempt, number FROM discarded_sends "
    "WHERE consumer_group = '{group}' AND sent_topic IS NULL"
)
_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT, number INT"


def check_named(settings: ConsumeSettings, spark: SparkSession) -> None:
    """Looks whether each table that rows wait for is named.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    named = {table.name for table in settings.write_to}
    missing = _waiting(settings, spark) - named
    if missing:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"rows that verdicts of {settings.group} write wait for {', '.join(sorted(missing))}: name it "
            "with --write-to NAME=PLACE, or give them up with lakemq outbox discard --group "
            f"{settings.group}",
        )
    for checkpoint in settings.checkpoint_of("group").parent.glob(f"{STREAM}*"):
        if checkpoint.name.removeprefix(STREAM) not in named:
            # The next run that names it would look for commits long deleted.
            for part in checkpoint.iterdir():
                if part.is_dir():
                    shutil.rmtree(part, ignore_errors=True)
                elif part.name != FILE:
                    part.unlink(missing_ok=True)


def _waiting(settings: ConsumeSettings, spark: SparkSession) -> set[str]:
    from pyspark.sql import functions as F

    from jobs.table_rows.batch_rows import each_row

    ledger, group = settings.ledger, settings.group
    ((oldest,),) = select(ledger, _OLDEST.format(group=group), spark)
    if oldest is None:
        return set()
    rows = ledger.read(spark, DELIVERIES).where(
        (F.col("consumer_group") == group) & (F.col("writes") > 0) & (F.col("finished_at") >= F.lit(oldest))
    )
    key = [*DELIVERY_KEY[1:], "number"]
    written = ledger.read(spark, WRITTEN_ROWS).where(F.col("consumer_group") == group).select(*key)
    given_up = spark.createDataFrame(select(ledger, _GIVEN_UP.format(group=group), spark), _TYPES)
    left = each_row(rows).join(written, key, "left_anti").join(given_up, key, "left_anti")
    return {row.table_name for row in left.select("table_name").distinct().collect()}
