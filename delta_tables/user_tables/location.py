"""Where a user's table is, and how rows are appended to it.

Owns what is looked at of such a table, and the append.

Invariants: rows are appended and nothing else: no table is made, no column added. An append is a transaction
of Delta's with the application and the version it is given, and is there once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_tables.idempotent import commit_once
from delta_tables.user_tables.columns import TableColumns
from store_native.errors import from_code

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TABLES = 8
"""Of one group: each has a stream of its own."""


@dataclass(frozen=True)
class UserTable:
    """A Delta table of a user's, in a directory.

    Attributes:
        name: by which rows name it.
        path: of the directory, absolute, or a URL.
    """

    name: str
    path: str

    def __post_init__(self) -> None:
        """Checks the name; raises InvalidRequest."""
        if not _NAME.fullmatch(self.name):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"--write-to: {self.name!r} is no name of a table: 1 to 64 letters, digits, _ and -",
            )

    def table_id(self) -> str:
        """Delta's id of the table, which another one at its place has not.

        Raises:
            InvalidRequest: TABLE_NOT_EXIST.
        """
        return str(self._open().metadata().id)

    def knows(self, app_id: str, version: int) -> bool:
        """Whether the table has the transaction (app_id, version), or a later one."""
        known = self._open().transaction_version(app_id)
        return known is not None and known >= version

    def columns(self) -> TableColumns:
        """Looks at the table as it is now.

        Raises:
            InvalidRequest: TABLE_NOT_EXIST; TABLE_REFUSED where rows cannot be written to it.
        """
        schema = str(self._open().schema().to_json())
        try:
            return TableColumns.of(schema)
        except ValueError as error:
            raise from_code("TABLE_REFUSED", f"rows cannot be written to {self.path}: {error}") from error

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self.path)
        except (DeltaError, OSError) as error:
            said = str(error).partition("\n")[0]
            raise from_code("TABLE_NOT_EXIST", f"there is no Delta table at {self.path}: {said}") from error

    def append(self, rows: DataFrame, *, app_id: str, version: int) -> bool:
        """Appends a frame as the transaction (app_id, version); see `append_once`.

        Returns:
            Whether the rows are in by this call; False when the table had this version, or a later one.
        """
        quoted = self.path.replace("`", "``")

        def commit() -> None:
            (
                rows.writeTo(f"delta.`{quoted}`")  # a writer that ends in save() would make a missing table
                .option("txnAppId", app_id)
                .option("txnVersion", str(version))
                .append()
            )

        return commit_once(rows.sparkSession, commit)
