"""An append whose files the tasks have written: what is left to do is a commit that names them.

Owns which tables take such files, and the commit.

Invariants: between the look at a table and the commit nothing comes that would change what the files have to
be, or the application's version: `deltalake` ends the commit then, and the table is looked at again. The rows
are made once, however often the commit is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from delta_tables.ledger.data_files import DataFile
from delta_tables.table import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_MOST_WRITER_VERSION = 3
"""From the next one on a table may be more than its columns, constraints and `delta.appendOnly`."""
_OF_DELTA = "delta."
_CONSTRAINT = "delta.constraints."
_SKIPPING = "delta.dataSkippingStatsColumns"
_NOT_OF_FILES = frozenset(
    f"{_OF_DELTA}{name}"
    for name in (
        "appendOnly",
        "autoOptimize.autoCompact",
        "autoOptimize.optimizeWrite",
        "checkpoint.writeStatsAsJson",
        "checkpoint.writeStatsAsStruct",
        "checkpointInterval",
        "dataSkippingNumIndexedCols",
        "dataSkippingStatsColumns",
        "deletedFileRetentionDuration",
        "enableExpiredLogCleanup",
        "isolationLevel",
        "logRetentionDuration",
        "minReaderVersion",
        "minWriterVersion",
        "sampleRetentionDuration",
        "setTransactionRetentionDuration",
        "targetFileSize",
        "tuneFileSizesForRewrites",
    )
)
"""Properties that ask nothing of who writes a file, but statistics, which are looked at."""


def takes_files(delta: DeltaTable, table: Table) -> bool:
    """Whether rows of this version, in files of `FileTask`, are all that the table asks for.

    A table that an operator gave more (constraints, partitions, statistics of other columns, features of a
    later protocol, properties that are not known here) is Spark's to write: it knows them all.

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
    for name, value in stored.items():
        if name.startswith(_CONSTRAINT):
            if table.constraints.get(name) != value:
                return False
        elif name.startswith(_OF_DELTA) and name not in _NOT_OF_FILES:
            return False
    if {name.strip(" `") for name in stored.get(_SKIPPING, "").split(",")} != set(table.skipping):
        return False
    fields = {field.name: field for field in delta.schema().fields}
    if any(not field.nullable or "delta.invariants" in field.metadata for field in fields.values()):
        return False
    return fields.keys() >= set(table.column_names)


def commit_files(delta: DeltaTable, files: Sequence[DataFile], app_id: str, version: int) -> None:
    """Commits files as the transaction (app_id, version).

    Args:
        delta: the table as it was looked at; it knows an earlier version of the application's, or none.
        files: their names, none for a commit that notes the version only.
        app_id: Delta's application id.
        version: its version.

    Raises:
        CommitFailedError: another version of the application's, or a change of the table, came since.
    """
    from deltalake import CommitProperties, PostCommitHookProperties, Transaction
    from deltalake.transaction import AddAction

    added: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, {}, file.modified_ms, True, file.statistics) for file in files
    ]
    delta.create_write_transaction(
        added,
        "append",
        delta.schema(),
        commit_properties=CommitProperties(_history(files), app_transactions=[Transaction(app_id, version)]),
        post_commithook_properties=PostCommitHookProperties(False, False),  # see log_checkpoint.py
    )


def _history(files: Sequence[DataFile]) -> dict[str, dict[str, str]]:
    """What DESCRIBE HISTORY says of a commit, in Spark's words."""
    numbers = {
        "numFiles": len(files),
        "numOutputRows": sum(file.rows for file in files),
        "numOutputBytes": sum(file.size_bytes for file in files),
    }
    return {"operationMetrics": {name: str(number) for name, number in numbers.items()}}


def has_files(delta: DeltaTable, files: Sequence[DataFile]) -> bool:
    """Whether files, one at least, are part of the table as it is."""
    return bool(files) and files[0].path in delta.get_add_actions().column("path").to_pylist()
