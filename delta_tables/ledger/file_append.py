"""An append whose files the tasks have written: what is left to do is a commit that names them.

Owns which tables take such files, and the commit.

Invariants: between the look at a table and the commit nothing comes that would change what the files have to
be, or the application's version: `deltalake` ends the commit then, and the table is looked at again. The rows
are made once, however often the commit is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from delta_tables.ledger.data_files import DataFile
from delta_tables.table import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_MOST_WRITER_VERSION = 3
"""From the next one on a table may be more than its columns, constraints and `delta.appendOnly`."""
_CONSTRAINT = "delta.constraints."
_SKIPPING = "delta.dataSkippingStatsColumns"
_FILE_PREFIX = ("delta.randomizeFilePrefixes", "delta.randomizePrefixLength")


def takes_files(delta: DeltaTable, table: Table) -> bool:
    """Whether rows of this version, in files of `FileTask`, are all that the table asks for.

    A table that an operator gave more (constraints, partitions, statistics of other columns, features of a
    later protocol) is Spark's to write: it knows them all.

    Args:
        delta: the table as it is.
        table: the table as this version writes it.
    """
    if delta.protocol().min_writer_version > _MOST_WRITER_VERSION:
        return False
    metadata = delta.metadata()
    if metadata.partition_columns:
        return False
    stored: Mapping[str, str] = metadata.configuration
    constraints = {name: text for name, text in stored.items() if name.startswith(_CONSTRAINT)}
    if constraints.items() - table.constraints.items():
        return False
    if any(name in stored for name in _FILE_PREFIX):
        return False
    if {name.strip(" `") for name in stored.get(_SKIPPING, "").split(",")} != set(table.skipping):
        return False
    fields = {field.name: field for field in delta.schema().fields}
    if any(not field.nullable or "delta.invariants" in field.metadata for field in fields.values()):
        return False
    return fields.keys() >= set(table.column_names)


def commit_files(delta: DeltaTable, files: Iterable[DataFile], app_id: str, version: int) -> None:
    """Commits files as the transaction (app_id, version).

    Args:
        delta: the table as it was looked at; it knows an earlier version of the application's, or none.
        files: their names, none for a commit that notes the version only.
        app_id: Delta's application id.
        version: its version.

    Raises:
        CommitFailedError: another version of the application's, or a change of the table, came since.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    added: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, {}, file.modified_ms, True, file.statistics) for file in files
    ]
    delta.create_write_transaction(
        added,
        "append",
        delta.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )
