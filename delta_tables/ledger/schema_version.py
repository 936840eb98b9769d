"""The version of a table's columns, as the table itself says it.

Owns the property, and what follows from the version that is found. `major.minor`: a minor version only adds
columns that may be null, so that a writer of an earlier one goes on; a major version is for what such a
writer would get wrong, and keeps it out.

Invariants: a version never goes back. A table without the property is older than any with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from delta_tables.table import Table
from store_native.errors import from_code

SCHEMA_VERSION = "lakemq.schema_version"
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


def written(table: Table) -> str:
    """The version that this one writes, as the property has it."""
    major, minor = table.version
    return f"{major}.{minor}"


def is_behind(properties: Mapping[str, str], table: Table, ledger: str) -> bool:
    """Whether a table was made by an earlier version and not gone on with by this one yet.

    Args:
        properties: the table's properties where it is.
        table: the table as this version writes it.
        ledger: where it is, for the error.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when a later version made it so that this one must not write it, or
            the property is none of a LakeMQ's.
    """
    stored = properties.get(SCHEMA_VERSION)
    if stored is None:
        return True
    found = _VERSION.fullmatch(stored)
    if found is None:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"the table {table.name} of {ledger} has the property {SCHEMA_VERSION} = {stored!r}, which is no "
            f"version: {written(table)} is this one's",
        )
    version = (int(found[1]), int(found[2]))
    if version[0] > table.version[0]:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"the table {table.name} of {ledger} has the schema version {stored}, and this version writes "
            f"{written(table)}: use the version that made it, or another ledger",
        )
    return version < table.version
