"""Keeping the ledger small and quick: compaction, clean-up, retention.

Owns OPTIMIZE, VACUUM and the deletion of old rows.

Invariants: the streams over `deliveries` go on (compaction changes no data, deletions are passed over by
`skipChangeCommits`), and no file a reader or a stream may still need goes before the retention hours. What a
parked message waits with stays, however old (kept_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from delta_tables.deliveries import DELIVERIES
from delta_tables.kept_rows import iso, kept_since, others
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from delta_tables.views import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGE_COLUMN = {
    "messages": "store_timestamp",
    "deliveries": "finished_at",
    "dead_letters": "last_attempt_at",
    "consumer_offsets": "recorded_at",
    "data_losses": "recorded_at",
    "replays": "replayed_at",
    "sent_messages": "sent_at",
    "refused_sends": "refused_at",
    "discarded_sends": "discarded_at",
}

_ARROW_TIME = "arrow_cast('{at}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
_SPARK_TIME = "TIMESTAMP '{at}'"


@dataclass(frozen=True)
class MaintenanceReport:
    """What was done to one table."""

    table: str
    files_removed: int
    files_added: int
    rows_deleted: int
    files_vacuumed: int


def maintain(
    ledger: PathLedger,
    *,
    vacuum_hours: int = 168,
    keep_days: int | None = None,
    now: datetime | None = None,
) -> list[MaintenanceReport]:
    """Compacts, cleans and shortens the tables of a ledger on a path.

    Args:
        ledger: a ledger on a path.
        vacuum_hours: files no longer part of a table are kept so long for readers of older versions.
        keep_days: rows older than that are deleted, but what parked messages wait with; None keeps all.
            Without a row its message counts as never delivered, so keep more than the broker does.
        now: the time to count from.

    Raises:
        Unavailable: STORE_LOCKED when a table is being written.
    """
    before = None if keep_days is None else (now or datetime.now(UTC)) - timedelta(days=keep_days)
    return [_maintain(ledger, table, vacuum_hours, before) for table in TABLES if ledger.exists(table)]


def _maintain(
    ledger: PathLedger, table: Table, vacuum_hours: int, before: datetime | None
) -> MaintenanceReport:
    (lock,) = ledger.writer_locks([table])
    lock.acquire()
    try:
        delta = ledger.open(table)
        deleted = 0
        if before is not None:
            condition = f"{_AGE_COLUMN[table.name]} < {_ARROW_TIME.format(at=iso(before))}"
            if table is DELIVERIES:
                condition += others(kept_since(ledger), _ARROW_TIME)
            done = delta.delete(condition)
            deleted = int(done.get("num_deleted_rows") or 0)
        packed = delta.optimize.compact()
        vacuumed = delta.vacuum(retention_hours=vacuum_hours, dry_run=False)
        return MaintenanceReport(
            table.name,
            int(packed["numFilesRemoved"]),
            int(packed["numFilesAdded"]),
            deleted,
            len(vacuumed),
        )
    finally:
        lock.release()


def maintain_in_catalog(
    spark: SparkSession,
    ledger: CatalogLedger,
    *,
    vacuum_hours: int = 168,
    keep_days: int | None = None,
    tables: Sequence[Table] = TABLES,
) -> None:
    """The same for a ledger in a catalog, or some of its tables, which exclude writers by themselves."""
    # One time for all tables: a row and what came of it, which is younger, go in this order.
    before = None if keep_days is None else datetime.now(UTC) - timedelta(days=keep_days)
    for table in tables:
        name = ledger.qualified(table)
        if not spark.catalog.tableExists(name):  # an archive that never ran, say
            continue
        if before is not None:
            condition = f"{_AGE_COLUMN[table.name]} < {_SPARK_TIME.format(at=iso(before))}"
            if table is DELIVERIES:
                condition += others(kept_since(ledger, spark), _SPARK_TIME)
            spark.sql(f"DELETE FROM {name} WHERE {condition}")
        spark.sql(f"OPTIMIZE {name}")
        spark.sql(f"VACUUM {name} RETAIN {int(vacuum_hours)} HOURS")
