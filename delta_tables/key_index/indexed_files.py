"""Which entries of the index hold, and which files are to be read themselves.

Owns the comparison of what the index lists with the files that `deliveries` has.

Invariants: each file of the table is told by one generation, or is not indexed; never both, never twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.key_index.message_keys import KEYED_COLUMNS, MESSAGE_KEYS, number_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from delta_tables.ledger.path_ledger import PathLedger

LISTED = "SELECT generation, file, rows FROM message_keys WHERE key IS NULL ORDER BY generation DESC, file"
"""Which files the index is of, the newest generation first."""

_PLAIN = 1
"""Delta's reader version in which a data file is what it holds. In later ones there may be marks beside it,
of rows that were deleted, and columns under other names."""


@dataclass(frozen=True)
class DataFile:
    """A file of `deliveries`.

    Attributes:
        path: where it is.
        number: what stands for it in the index.
        rows: how many it has.
        size_bytes: its size.
    """

    path: Path
    number: int
    rows: int
    size_bytes: int


def files_of(deliveries: DeltaTable, directory: Path) -> list[DataFile] | None:
    """The files of the table in the order of their times, or None where they do not tell all.

    Args:
        deliveries: the table.
        directory: where it is.
    """
    there = {field.name for field in deliveries.schema().fields}
    parted = deliveries.metadata().partition_columns  # whose values are not in the files
    if parted or deliveries.protocol().min_reader_version > _PLAIN or not {"keys", *KEYED_COLUMNS} <= there:
        return None
    added = pa.table(deliveries.get_add_actions(flatten=True))
    if not added.num_rows:
        return []
    if "num_records" not in added.column_names or added.column("num_records").null_count:
        return None
    if "min.finished_at" in added.column_names:
        added = added.sort_by([("min.finished_at", "ascending"), ("path", "ascending")])
    if any(path.startswith(("/", "file:")) for path in added.column("path").to_pylist()):
        return None  # a shallow clone's are another table's
    told = (added.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    return [
        DataFile(directory / path, number_of(path), rows, size)
        for path, rows, size in zip(*told, strict=True)
    ]


def whole_index(ledger: PathLedger) -> DeltaTable | None:
    """The index as it is now; None where there is none, or a part of it is missing: it is only derived."""
    from deltalake.exceptions import DeltaError

    try:
        if not ledger.exists(MESSAGE_KEYS):
            return None
        index = ledger.open(MESSAGE_KEYS)
        paths = pa.table(index.get_add_actions(flatten=True)).column("path").to_pylist()
    except (DeltaError, OSError):
        return None
    directory = ledger.path(MESSAGE_KEYS)
    return index if all((directory / path).exists() for path in paths) else None


@dataclass(frozen=True)
class IndexedFiles:
    """What holds of the index.

    Attributes:
        listed: by generation the files that it is of, with their rows.
        holding: those of them that `deliveries` has, each in the newest generation that lists it.
        others: the files of `deliveries` that are not indexed.
    """

    listed: Mapping[int, Mapping[int, int]]
    holding: Mapping[int, Mapping[int, int]]
    others: Sequence[DataFile]

    @classmethod
    def of(cls, files: Sequence[DataFile], listed: Sequence[Mapping[str, int]]) -> IndexedFiles:
        """Compares the files with the rows of `LISTED`."""
        there = {file.number for file in files}
        told: set[int] = set()
        by_generation: dict[int, dict[int, int]] = {}
        holding: dict[int, dict[int, int]] = {}
        for row in listed:
            generation, file, rows = row["generation"], row["file"], row["rows"]
            by_generation.setdefault(generation, {})[file] = rows
            if file in there and file not in told:
                told.add(file)
                holding.setdefault(generation, {})[file] = rows
        return cls(by_generation, holding, [file for file in files if file.number not in told])

    @property
    def rows(self) -> dict[int, int]:
        """By generation the rows of `deliveries` that it tells."""
        return {generation: sum(self.holding.get(generation, {}).values()) for generation in self.listed}

    def condition(self, generations: Sequence[int]) -> str:
        """Which entries of some generations hold, in SQL."""
        each = [
            f"generation = {generation}"
            + ("" if files == self.listed[generation] else f" AND file IN ({', '.join(map(str, files))})")
            for generation in generations
            if (files := self.holding.get(generation))
        ]
        return " OR ".join(f"({part})" for part in each) or "false"
