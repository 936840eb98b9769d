"""Keeping the ledger small and quick: compaction, clean-up, retention, and on a path the index by key.

Owns OPTIMIZE, VACUUM and the deletion of old rows.

Invariants: the streams over `deliveries` go on (compaction changes no data, deletions are passed over by
`skipChangeCommits`), and no file a reader or a stream may still need goes before the retention hours. A row
whose messages wait to be sent, or whose rows to be written, stays, and so does all that says which of its
group's were since; what retries, dead letters and lanes of orderly groups wait with stays, however old
(kept_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_tables import retained_from
from delta_tables.consumer_offsets import CONSUMER_OFFSETS, RETENTION
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.idempotent import append_arrow_once
from delta_tables.kept_rows import KeptRows, kept_rows
from delta_tables.key_index.generations import KeyIndex
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import with_views
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.table import KEPT_DAYS, Table
from delta_tables.views import TABLES
from delta_tables.written_rows import WRITTEN_ROWS
from store_native.errors import LakeMQError, Unavailable, from_code

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, WriterProperties
    from pyspark.sql import SparkSession

KEPT_HOURS = KEPT_DAYS * 24
_LEAST_HOURS = 168
_MOST_DAYS = 36_500
_GROUP_ROWS = 1 << 20
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_OF_SENDS = (DELIVERIES, SENT_MESSAGES, WRITTEN_ROWS, REFUSED_SENDS, DISCARDED_SENDS)

_AGE_COLUMN = {
    "messages": "store_timestamp",
    "deliveries": "finished_at",
    "dead_letters": "last_attempt_at",
    "consumer_offsets": "recorded_at",
    "data_losses": "recorded_at",
    "replays": "replayed_at",
    "sent_messages": "sent_at",
    "written_rows": "written_at",
    "refused_sends": "refused_at",
    "discarded_sends": "discarded_at",
    "skipped_messages": "skipped_at",
}
"""By what the rows of a table grow old; those of others are kept."""


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
    vacuum_hours: int = KEPT_HOURS,
    keep_days: int | None = None,
    now: datetime | None = None,
) -> list[MaintenanceReport]:
    """Compacts, cleans and shortens the tables of a ledger on a path, and indexes its deliveries by key.

    Args:
        ledger: a ledger on a path.
        vacuum_hours: files no longer part of a table are kept so long for readers of older versions: for
            streams that were paused, too. A week at least.
        keep_days: rows older than that are deleted, but what messages wait with; None keeps all.
            A group that starts without its checkpoint does not know of them: keep more than the broker does.
        now: the time to count from.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for fewer hours than a week has, days that are none, or where there
            is no ledger.
        Unavailable: STORE_LOCKED when a table is being written; deliveries are indexed all the same.
    """
    if vacuum_hours < _LEAST_HOURS:
        raise from_code("ARGUMENT_ILLEGAL", f"files are kept for {_LEAST_HOURS} hours at least")
    _check_days(keep_days)
    tables = [table for table in TABLES if ledger.exists(table)]
    if not tables:
        raise _no_ledger(ledger)
    try:
        reports = _maintained(ledger, tables, vacuum_hours, keep_days, now)
    except Unavailable:
        _index(ledger, tables)  # beside a group that works, which keeps its tables
        raise
    _index(ledger, tables)  # the last: the files are now as they stay
    return reports


def _index(ledger: PathLedger, tables: Sequence[Table]) -> None:
    if DELIVERIES in tables:
        KeyIndex(ledger).update()


def _maintained(
    ledger: PathLedger,
    tables: Sequence[Table],
    vacuum_hours: int,
    keep_days: int | None,
    now: datetime | None,
) -> list[MaintenanceReport]:
    old: dict[str, str] = {}
    if keep_days is not None:
        before = (now or datetime.now(UTC)) - timedelta(days=keep_days)
        asked = SENT_MESSAGES in tables
        unsent = LedgerReader(ledger.directory).sql(_unsent(_in_arrow(before))).to_pylist() if asked else []
        kept = kept_rows(ledger) if DELIVERIES in tables else KeptRows()
        marks = DELIVERIES in tables
        old = {
            table.name: _old(table, before, unsent, kept, _in_arrow, marks)
            for table in tables
            if table.name in _AGE_COLUMN
        }
        if DELIVERIES in tables and CONSUMER_OFFSETS in tables:
            _say_from_where(ledger, old[DELIVERIES.name], before)
    return [_maintain(ledger, table, vacuum_hours, old.get(table.name)) for table in tables]


def _no_ledger(ledger: LedgerLocation) -> LakeMQError:
    return from_code("ARGUMENT_ILLEGAL", f"there is no ledger at {ledger}: nothing was maintained")


def _check_days(keep_days: int | None) -> None:
    if keep_days is not None and not 1 <= keep_days <= _MOST_DAYS:
        raise from_code("ARGUMENT_ILLEGAL", f"rows are kept for 1 to {_MOST_DAYS} days, not {keep_days}")


def _say_from_where(ledger: PathLedger, old: str, before: datetime) -> None:
    (lock,) = ledger.writer_locks([CONSUMER_OFFSETS])
    lock.acquire()
    try:
        ledger.fit(CONSUMER_OFFSETS)  # an earlier version's has a column less
        found = LedgerReader(ledger.directory).sql(retained_from.question(old)).to_pylist()
        _append(retained_from.rows(found, before), ledger, before)
    finally:
        lock.release()


def _append(
    rows: pa.Table, ledger: LedgerLocation, before: datetime, spark: SparkSession | None = None
) -> None:
    if rows.num_rows:
        version = round(before.timestamp() * 1000)
        append_arrow_once(rows, ledger, CONSUMER_OFFSETS, app_id=RETENTION, version=version, spark=spark)


def _maintain(ledger: PathLedger, table: Table, vacuum_hours: int, old: str | None) -> MaintenanceReport:
    (lock,) = ledger.writer_locks([table])
    lock.acquire()
    try:
        delta = ledger.open(table)
        deleted = 0
        if old is not None:
            deleted = int(delta.delete(old).get("num_deleted_rows") or 0)
        packed = delta.optimize.compact(writer_properties=_written(delta, table))
        # Full: a file that was replaced is older than what the log knows of it.
        vacuumed = delta.vacuum(
            retention_hours=vacuum_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        return MaintenanceReport(
            table.name,
            int(packed["numFilesRemoved"]),
            int(packed["numFilesAdded"]),
            deleted,
            len(vacuumed),
        )
    finally:
        lock.release()


def _written(delta: DeltaTable, table: Table) -> WriterProperties:
    """How compacted files are written: with a filter that finds a message's id.

    Ids of one broker go up, and minimum and maximum tell them; those of several lie apart in each file.
    """
    from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties

    if "message_id" not in table.column_names:
        return WriterProperties(compression="ZSTD")
    rows = sum(rows or 0 for rows in delta.get_add_actions().column("num_records").to_pylist())
    by_id = BloomFilterProperties(set_bloom_filter_enabled=True, fpp=0.01, ndv=max(1, min(rows, _GROUP_ROWS)))
    columns = {"message_id": ColumnProperties(bloom_filter_properties=by_id)}
    return WriterProperties(compression="ZSTD", column_properties=columns, max_row_group_size=_GROUP_ROWS)


def maintain_in_catalog(
    spark: SparkSession,
    ledger: CatalogLedger,
    *,
    vacuum_hours: int = KEPT_HOURS,
    keep_days: int | None = None,
    tables: Sequence[Table] = TABLES,
) -> None:
    """The same for a ledger in a catalog, or some of its tables, which exclude writers by themselves.

    Spark refuses fewer hours than the table's `delta.deletedFileRetentionDuration`.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for days that are none, or where there is no ledger.
    """
    _check_days(keep_days)
    if not any(spark.catalog.tableExists(ledger.qualified(table)) for table in TABLES):
        raise _no_ledger(ledger)
    # One time for all tables: a row and what came of it, which is younger, go in this order.
    before = None if keep_days is None else datetime.now(UTC) - timedelta(days=keep_days)
    unsent: list[dict[str, Any]] = []
    kept = KeptRows()
    if before is not None and spark.catalog.tableExists(ledger.qualified(DELIVERIES)):
        kept = kept_rows(ledger, spark)
    made = (spark.catalog.tableExists(ledger.qualified(table)) for table in (DELIVERIES, SENT_MESSAGES))
    if before is not None and all(made):
        # Views name them, and columns that an earlier version's have not.
        ledger.create_for((DELIVERIES,), (WRITTEN_ROWS, REFUSED_SENDS, DISCARDED_SENDS), spark)
        found = spark.sql(with_views(ledger, _unsent(_in_spark(before))))
        unsent = found.toArrow().to_pylist()
    if before is not None and DELIVERIES in tables:
        ledger.create_for((DELIVERIES, CONSUMER_OFFSETS), (), spark)
        question = retained_from.question(_old(DELIVERIES, before, unsent, kept, _in_spark, True))
        found = spark.sql(with_views(ledger, question)).toArrow().to_pylist()
        _append(retained_from.rows(found, before), ledger, before, spark)
    for table in tables:
        name = ledger.qualified(table)
        if not spark.catalog.tableExists(name):  # an archive that never ran, say
            continue
        if before is not None and table.name in _AGE_COLUMN:
            old = _old(table, before, unsent, kept, _in_spark, DELIVERIES in tables)
            spark.sql(f"DELETE FROM {name} WHERE {old}")
        spark.sql(f"OPTIMIZE {name}")
        spark.sql(f"VACUUM {name} RETAIN {int(vacuum_hours)} HOURS")


def _unsent(before: str) -> str:
    """Of each group the oldest row that sends and whose messages wait, where it is too old to keep."""
    return (
        "SELECT consumer_group, min(decided_at) AS oldest FROM pending_sends "
        f"WHERE decided_at < {before} GROUP BY consumer_group"
    )


def _old(
    table: Table,
    before: datetime,
    unsent: Sequence[dict[str, Any]],
    kept: KeptRows,
    in_sql: Callable[[datetime], str],
    has_new_marks: bool,
) -> str:
    """The condition on the rows to delete.

    A group with messages or rows that wait keeps its rows that send or write, and what became of them, since
    the oldest of these: without the row that says so, a message that was sent would count as one that waits.
    One with retries, dead letters or lanes that wait keeps the rows since these, and so what became of them:
    dead letters that have landed, ranges that are known to be lost, messages that an operator gave up.
    """
    age = _AGE_COLUMN[table.name]
    condition = f"{age} < {in_sql(before)}"
    if table is CONSUMER_OFFSETS:
        # What says from where on a queue is kept goes when the next one is there.
        mark = f"query_id = '{RETENTION}'"
        reports = f"(query_id <> '{RETENTION}'{kept.spared(table, age, in_sql)})"
        return f"{condition} AND ({mark} OR {reports})" if has_new_marks else f"{condition} AND {reports}"
    if table not in _OF_SENDS:
        return condition if table is MESSAGES else condition + kept.spared(table, age, in_sql)
    sends = " AND coalesce(sends, writes, 0) > 0" if table is DELIVERIES else ""
    waiting = [
        f"(consumer_group = '{row['consumer_group']}'{sends} AND {age} >= {in_sql(row['oldest'])})"
        for row in unsent
    ]
    if waiting:
        condition += f" AND NOT ({' OR '.join(waiting)})"
    return condition + kept.spared(table, age, in_sql)


def _in_arrow(at: datetime) -> str:
    return f"arrow_cast('{at.astimezone(UTC).strftime(_TIME)}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _in_spark(at: datetime) -> str:
    return f"TIMESTAMP '{at.astimezone(UTC).strftime(_TIME)}'"
