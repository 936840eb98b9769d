"""Which table a name stands for, from the first run of a stream's checkpoint on.

Owns the file beside the checkpoint's.

Invariants: a name stands for one table, wherever that is moved: rows that waited for it go to no other, also
where names are given in another order, or another table is at its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from delta_tables.user_tables.user_table import UserTable
from store_native.durable_files import DISK, FileDisk, make_directory, replace_file
from store_native.errors import DataCorrupt, from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "lakemq-table.json"


def noted_table(
    directory: Path, table: UserTable, spark: SparkSession | None = None, disk: FileDisk = DISK
) -> str:
    """Returns the id of the table that a name stands for; notes it where none is noted yet.

    Args:
        directory: the stream's checkpoint.
        table: as the run names it.
        spark: the session, for a table in a catalog.
        disk: brings the file to the disk.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, it is another one than before; TABLE_NOT_EXIST.
        DataCorrupt: the file is not readable.
    """
    file = directory / FILE
    found = table.table_id(spark)
    try:
        noted = json.loads(file.read_bytes())
        known, path = str(noted["id"]), str(noted["path"])
    except FileNotFoundError:
        make_directory(directory, disk)
        replace_file(file, json.dumps({"id": found, "path": table.place}).encode(), disk)
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorrupt("DATA_CORRUPT", f"{file} does not say which table {table.name} is") from error
    if found != known:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"--write-to {table.name}: the table at {table.place} is not the one that the group has written "
            f"to by this name (Delta's id {known}, then at {path}): give this one another name",
        )
    return known
