"""The view `deliveries_by_key`, in the engine without a JVM: out of the index, and of files not indexed yet.

Owns its text for one moment of the ledger, and that of a file's entries.

Invariants: it has a row for each key of each row of `deliveries` at that moment, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.deliveries import DELIVERIES
from delta_tables.key_index.indexed_files import LISTED, DataFile, IndexedFiles, files_of, whole_index
from delta_tables.key_index.message_keys import KEYED_COLUMNS, MESSAGE_KEYS
from delta_tables.views import BY_KEY

if TYPE_CHECKING:
    from deltalake import DeltaTable, QueryBuilder

    from delta_tables.ledger.path_ledger import PathLedger

_COLUMNS = ", ".join(KEYED_COLUMNS)
_AS_KEPT = ", ".join(
    "arrow_cast(finished_at, 'Timestamp(Microsecond, Some(\"UTC\"))') AS finished_at"
    if name == "finished_at"
    else name
    for name in KEYED_COLUMNS
)
"""Spark writes times to the nanosecond, without a zone."""


MOST_FILES = 200
"""Files that one statement reads beside each other: the engine's stack grows with each of them."""


def make_view(session: QueryBuilder, ledger: PathLedger, deliveries: DeltaTable | None) -> None:
    """Makes the view.

    Args:
        session: It knows `deliveries`.
        ledger: Where the tables are.
        deliveries: The table as the session knows it; None where it is not there. The index may be of any
            other moment.
    """
    session.execute(f"CREATE VIEW {BY_KEY} AS {_text(session, ledger, deliveries)}").read_all()


def _text(session: QueryBuilder, ledger: PathLedger, deliveries: DeltaTable | None) -> str:
    every_row = f"SELECT key, {_AS_KEPT} FROM ({_each_key(DELIVERIES.name)}) AS each"
    files = None if deliveries is None else files_of(deliveries, ledger.path(DELIVERIES))
    index = None if files is None else whole_index(ledger)
    if files is None or index is None:
        return every_row
    session.register(MESSAGE_KEYS.name, index)
    indexed = IndexedFiles.of(files, pa.table(session.execute(LISTED).read_all()).to_pylist())
    if not indexed.holding or len(indexed.others) > MOST_FILES:
        return every_row
    parts = [
        f"SELECT key, {_COLUMNS} FROM {MESSAGE_KEYS.name} "
        f"WHERE key IS NOT NULL AND ({indexed.condition([*indexed.holding])})",
        *(f"SELECT key, {_COLUMNS} FROM ({part}) AS told" for part in entries(session, indexed.others)),
    ]
    return " UNION ALL ".join(parts)


def entries(session: QueryBuilder, files: Sequence[DataFile]) -> list[str]:
    """Makes files known to a session; returns of each the SELECT of its entries, without `generation`."""
    parts = []
    for file in files:
        name = f"deliveries_{file.number & (1 << 64) - 1:x}"
        place = file.path.as_uri().replace("'", "''")
        session.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{place}'").read_all()
        parts.append(
            f"SELECT CAST({file.number} AS BIGINT) AS file, CAST(NULL AS BIGINT) AS rows, "
            f"key, {_AS_KEPT} FROM ({_each_key(name)}) AS each"
        )
    return parts


def _each_key(table: str) -> str:
    each = f"SELECT unnest(array_distinct(keys)) AS key, {_COLUMNS} FROM {table}"
    return f"SELECT * FROM ({each}) AS with_null WHERE key IS NOT NULL"
