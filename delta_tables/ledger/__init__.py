"""Where a ledger is.

    location.py        what it is to readers and writers
    path_ledger.py     in a directory; writer_lock.py keeps it to one writing process
    data_files.py      files that tasks write; file_append.py: which tables take them, and their commit
    log_checkpoint.py  when the log of a table gets a checkpoint
    compaction.py      the small files of its tables are put together while a job appends
    catalog_ledger.py  in a catalog's schema
    conflicts.py       commits that lost to another one
    spans.py           ranges of positions, and their SQL
    stored_columns.py  the columns a table has, held against those this version writes
    schema_version.py  the version of these columns, as the table says it

Owns the choice, from what a user wrote.
"""

from __future__ import annotations

import re
from pathlib import Path

from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from store_native.errors import from_code
from store_native.places import why_no_directory

_TAKEN_FOR_ANOTHER = re.compile(r"%[0-9A-Fa-f]{2}|[][\\\x00-\x1f]")
_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")


def ledger_at(text: str) -> LedgerLocation:
    """Reads `--ledger`: two plain names with a dot are catalog.schema, anything else is a path.

    So are they where there is a directory of that name.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for an empty text, which would be the working directory, for an
            address (`s3://...`), which would be a directory of that name, and for a file.
    """
    if not text.strip():
        raise from_code("ARGUMENT_ILLEGAL", "the ledger's name is empty: give a directory, or catalog.schema")
    if "://" in text:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"{text} is an address: a ledger is a directory of this machine, or catalog.schema, whose "
            "tables may be anywhere",
        )
    if _CATALOG_NAME.fullmatch(text) and not Path(text).is_dir():
        return CatalogLedger(text)
    path = str(Path(text).absolute())
    if strange := sorted(set(_TAKEN_FOR_ANOTHER.findall(path))):
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"a ledger's directory has {' and '.join(map(ascii, strange))} in its name ({path!a}), which "
            "Delta takes for another place",
        )
    if why := why_no_directory(Path(text)):
        raise from_code("ARGUMENT_ILLEGAL", why)
    return PathLedger(Path(text).absolute())
