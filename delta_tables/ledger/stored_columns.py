"""The columns a table has where it is, held against those this version writes.

Owns what becomes of a table that another version made: which columns it lacks, and when it is refused.

Invariants: nothing is dropped or changed; columns are added only, and may be null. A column that a later
version added stays, null in the rows of this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from delta_tables.table import Column, Table
from store_native.errors import from_code


@dataclass(frozen=True)
class StoredColumn:
    """A column of a table where it is.

    Attributes:
        name: its name; Delta takes upper and lower case for the same.
        type: its type as Spark writes it, in lower case.
        nullable: whether it may be null.
        comment: what its description says, empty without.
    """

    name: str
    type: str
    nullable: bool
    comment: str = ""


def missing_columns(stored: Iterable[StoredColumn], table: Table, ledger: str) -> list[Column]:
    """The columns that have to be added before this version can append.

    Args:
        stored: the table's columns where it is.
        table: the table as this version writes it.
        ledger: where it is, for the error.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when rows of this version do not fit the table.
    """
    there = {column.name.lower(): column for column in stored}
    for column in table.columns:
        found = there.get(column.name)
        if found is not None and found.type != column.ddl.lower():
            raise _refusal(table, ledger, f"{column.name} is {found.type} there, {column.ddl.lower()} here")
    for name, found in there.items():
        if name not in table.column_names and not found.nullable:
            raise _refusal(table, ledger, f"{found.name} must not be null there, and is not known here")
    return [column for column in table.columns if column.name not in there]


def undescribed_columns(stored: Iterable[StoredColumn], table: Table) -> list[Column]:
    """The columns without a comment where they are; what an operator wrote there stays."""
    silent = {column.name.lower() for column in stored if not column.comment}
    return [column for column in table.columns if column.name in silent]


def _refusal(table: Table, ledger: str, why: str) -> Exception:
    return from_code(
        "ARGUMENT_ILLEGAL",
        f"the table {table.name} of {ledger} was made by another version, whose rows are not this one's: "
        f"{why}. Use the version that made it, or another ledger",
    )
