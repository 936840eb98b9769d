"""A user's own Delta tables, which rows of verdicts are appended to.

value_types.py    which values a column takes, and how they are kept as text; scalar_types.py: single ones
columns.py        the columns of a table, and a row of it
user_table.py     a table, and the append
path_table.py     by its directory or URL
catalog_table.py  by its name in a catalog

Owns the choice, from what a user wrote.
"""

from __future__ import annotations

import re
from pathlib import Path

from delta_tables.user_tables.catalog_table import CatalogTable
from delta_tables.user_tables.path_table import PathTable
from delta_tables.user_tables.user_table import UserTable

_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")


def table_at(name: str, place: str) -> UserTable:
    """Reads NAME=PLACE of `--write-to`: three plain names with dots are catalog.schema.table.

    Anything else is a path or a URL; so are they where there is a directory of that name.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, a name that rows cannot have.
    """
    if _CATALOG_NAME.fullmatch(place) and not Path(place).is_dir():
        return CatalogTable(name, place)
    return PathTable(name, place if "://" in place else str(Path(place).absolute()))
