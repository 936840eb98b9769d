"""A ledger as an operator has it: to query, and to write down what was done.

Owns the choice of the engine, and the lock under which a command writes a table.

Invariants: on a path there is no JVM unless it was asked for; one process writes a table of a ledger on a
path at a time, and in a catalog two that write the same rows at one time leave each once; the table has the
columns of this version before a row is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger import ledger_at
from delta_tables.ledger.conflicts import is_lost_commit
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.spark_reader import SparkReader
from delta_tables.table import Table
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TRIES = 5


class OpenedLedger:
    """A ledger.

    Args:
        ledger: A directory, or `catalog.schema`.
        spark: A session that reaches it; one in a catalog needs it, one on a path is queried by it.

    Attributes:
        location: Where its tables are.
        reader: Queries it.
        spark: The session, or None.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when there is no ledger, or it is in a catalog and there is
            no session, or none that reaches it.
    """

    def __init__(self, ledger: str | Path, spark: SparkSession | None = None) -> None:
        self.location = ledger_at(str(ledger))
        self.spark = spark
        self.reader: LedgerReader | SparkReader
        if spark is not None:
            self.reader = SparkReader(spark, self.location)
        elif isinstance(self.location, PathLedger):
            self.reader = LedgerReader(ledger)
        else:
            raise from_code(
                "ARGUMENT_ILLEGAL", f"{ledger} is a catalog's schema: it is reached by a session of Spark's"
            )

    @contextmanager
    def only_writer(self, table: Table) -> Iterator[None]:
        """Holds a table's lock, with the table as this version writes it.

        Raises:
            Unavailable: STORE_LOCKED when another process writes the table.
        """
        try:
            self.location.create(table, spark=self.spark)
        except Exception:  # of two commands that make it at one time
            if not self.location.exists(table, self.spark):
                raise
        with ExitStack() as held:
            for lock in self.location.writer_locks((table,)):
                lock.acquire()
                held.callback(lock.release)
            self.location.fit(table, spark=self.spark)
            yield

    def append(self, rows: pa.Table, table: Table, *, once: Sequence[str], app_id: str, version: int) -> None:
        """Appends rows; what the table has of them is left out.

        Args:
            rows: the rows.
            table: the table, which this is the only writer of.
            once: the columns of which it has one row each.
            app_id: Delta's application id.
            version: its version.
        """
        if isinstance(self.location, PathLedger):
            append_arrow_once(rows, self.location, table, app_id=app_id, version=version)
        else:
            assert self.spark is not None, "a ledger in a catalog is written through Spark"
            _merge(self.spark, rows, self.location.qualified(table), once)


def _merge(spark: SparkSession, rows: pa.Table, table: str, once: Sequence[str]) -> None:
    """Inserts the rows that a catalog's table lacks.

    No lock keeps two commands apart there. Delta refuses the second of two merges that read the same, and it
    is made again, over what the first has written.
    """
    name = f"lakemq_{uuid.uuid4().hex}"
    spark.createDataFrame(rows).createOrReplaceTempView(name)
    try:
        same = " AND ".join(f"there.{column} <=> given.{column}" for column in once)
        merge = f"MERGE INTO {table} AS there USING {name} AS given ON {same} WHEN NOT MATCHED THEN INSERT *"
        for tries_left in reversed(range(_TRIES)):
            try:
                spark.sql(merge)
                return
            except Exception as error:
                if not (tries_left and is_lost_commit(error)):
                    raise
    finally:
        spark.catalog.dropTempView(name)
