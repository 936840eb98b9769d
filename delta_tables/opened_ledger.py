"""A ledger as an operator has it: to query, and to write down what was done.

Owns the choice of the engine, and the lock under which a command writes a table.

Invariants: on a path there is no JVM unless it was asked for; one process writes a table of a ledger on a
path at a time, and the table has the columns of this version before a row is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger import ledger_at
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.spark_reader import SparkReader
from delta_tables.table import Table
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        self.location.create(table, spark=self.spark)
        with ExitStack() as held:
            for lock in self.location.writer_locks((table,)):
                lock.acquire()
                held.callback(lock.release)
            self.location.fit(table, spark=self.spark)
            yield

    def append(self, rows: pa.Table, table: Table, *, app_id: str, version: int) -> None:
        """Appends rows as Delta's transaction (app_id, version); what the table has of it is left out."""
        append_arrow_once(rows, self.location, table, app_id=app_id, version=version, spark=self.spark)
