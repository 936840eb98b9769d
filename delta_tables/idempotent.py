"""Appends that happen once, however often a batch is run.

Owns the use of Delta's transaction identifiers: a commit carries (application, version), and a commit with
a version at or below the one the table knows for that application is left out.

Invariants: for one application id, versions only grow, and the writer learns whether its rows are in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.ledger.conflicts import is_lost_commit
from delta_tables.ledger.file_append import takes_files
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from delta_tables.table import Table
from delta_tables.task_rows import TaskRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEVER = -1

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""Where Delta notes a session's newest commit, whatever the table; a commit left out notes nothing."""

_OVERTAKEN = "ConcurrentTransactionException"
_TRIES = 5


def append_once(
    rows: DataFrame,
    ledger: LedgerLocation,
    table: Table,
    *,
    app_id: str,
    version: int,
    has_effects: bool = False,
) -> bool:
    """Appends a frame as (app_id, version) in one Spark action; a repeat appends nothing.

    A frame that does not read the table conflicts with nobody's appends and with no compaction. What
    does conflict is a change of the table's properties or protocol: that is tried again, the frame
    evaluated anew. The frame is evaluated even on a repeat Delta only notices while committing, so a
    caller whose frame has effects asks `newest_batch` first. Nobody else commits to Delta in the frame's
    session meanwhile: its last commit is how Delta tells an append from one left out.

    Args:
        rows: the frame.
        ledger: where the table is.
        table: the table.
        app_id: Delta's application id.
        version: its version.
        has_effects: evaluating the frame does something (handlers run): it is then evaluated once, and a
            conflict is the caller's.

    Returns:
        Whether the rows are in by this call; False when the table had this version, or a later one.
    """

    def commit() -> None:
        writer = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", app_id)
            .option("txnVersion", str(version))
        )
        ledger.append(writer, table)

    return commit_once(rows.sparkSession, commit, has_effects=has_effects)


def commit_once(session: SparkSession, commit: Callable[[], None], *, has_effects: bool = False) -> bool:
    """Makes a commit that carries an application and a version; see `append_once`.

    Args:
        session: of the frame that is committed.
        commit: makes the commit; called again where another one came between that does not matter.
        has_effects: it is called once.

    Returns:
        Whether it was made by this call.
    """
    tries = 1 if has_effects else _TRIES
    for attempt in range(1, tries + 1):
        session.conf.unset(_LAST_COMMIT)
        try:
            commit()
        except Exception as error:
            if _OVERTAKEN in str(error):
                return False
            if attempt == tries or not is_lost_commit(error):
                raise
            continue
        return session.conf.get(_LAST_COMMIT, None) is not None
    raise AssertionError("the last try returns or raises")


def append_arrow_once(
    rows: pa.Table,
    ledger: LedgerLocation,
    table: Table,
    *,
    app_id: str,
    version: int,
    spark: SparkSession | None = None,
) -> bool:
    """Appends a small Arrow table as (app_id, version), on a path without a Spark job.

    Returns:
        Whether the rows were appended; False when the table knew this version already.
    """
    if not isinstance(ledger, PathLedger):
        assert spark is not None, "a ledger in a catalog is written through Spark"
        return append_once(spark.createDataFrame(rows), ledger, table, app_id=app_id, version=version)

    return ledger.append_arrow(rows, table, app_id=app_id, version=version)


def append_rows_once(
    rows: pa.Table | TaskRows,
    ledger: LedgerLocation,
    table: Table,
    *,
    app_id: str,
    version: int,
    spark: SparkSession,
) -> bool:
    """Appends rows that the driver has, or that tasks make, as (app_id, version).

    On a path without Spark's way to write, which works out the table's whole state for each append that
    carries a version: tasks write the table's files. What they make is made once, see `append_once`.

    Returns:
        Whether the rows are in by this call; False when the table had this version, or a later one.
    """
    if isinstance(ledger, PathLedger):
        delta = ledger.open(table)
        if takes_files(delta, table):
            if isinstance(rows, pa.Table):
                return ledger.append_arrow(rows, table, app_id=app_id, version=version)
            return ledger.append_tasks(rows, table, delta, app_id=app_id, version=version)
    if isinstance(rows, pa.Table):
        return append_once(spark.createDataFrame(rows), ledger, table, app_id=app_id, version=version)
    return append_once(rows.frame(), ledger, table, app_id=app_id, version=version, has_effects=True)


def note_version(
    spark: SparkSession, ledger: LedgerLocation, table: Table, *, app_id: str, version: int
) -> bool:
    """Notes (app_id, version) in a commit without rows; on a path without Spark, whose first takes seconds.

    A table on a path that is Spark's to write (`takes_files`) may be none that `deltalake` can.

    Returns:
        Whether it was noted by this call; False when the table had this version, or a later one.
    """
    if isinstance(ledger, PathLedger) and takes_files(ledger.open(table), table):
        return ledger.note_version(table, app_id=app_id, version=version)
    nothing = spark.createDataFrame([], table.ddl)
    return append_once(nothing, ledger, table, app_id=app_id, version=version)


def newest_batch(ledger: LedgerLocation, table: Table, *, query_id: str, spark: SparkSession) -> int:
    """The newest batch of a streaming query with rows in the table, NEVER when none.

    The rows say it, not a transaction's version: that belongs to the group, and another checkpoint may
    have moved it on. A batch without rows leaves none, but repeating it has no effect.

    Args:
        ledger: where the table is.
        table: a table with the columns query_id and batch_id.
        query_id: the streaming query.
        spark: the session.
    """
    ((newest,),) = select(
        ledger, f"SELECT max(batch_id) AS newest FROM {table.name} WHERE query_id = '{query_id}'", spark
    )
    return NEVER if newest is None else int(newest)
