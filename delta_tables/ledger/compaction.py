"""Putting the small files of a table together while a job appends to it, on a path.

Owns how many files of which size a table may have, and the rewrite. `PathLedger` calls it behind each append,
on the thread that appended: a table has one writing process, and of its threads one.

Invariants: no row changes, and no commit of a group does: the rewrite is a commit of its own without data
(`dataChange` is false), which streams over the table pass over. A rewrite that fails costs the files, not the
append, which is in by then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileSize:
    """A size that files are put together to.

    Attributes:
        target_bytes: the size; a file of half of it or more counts as one that has it.
        most_smaller: how many smaller ones a table may have, but for those between two that have it.
    """

    target_bytes: int
    most_smaller: int


FILE_SIZES = (FileSize(16 << 20, 66), FileSize(1 << 20, 50))
"""The largest first. A row is written anew while its file grows to 1 MiB, and once more to 16 MiB."""


def compact(delta: DeltaTable, sizes: Sequence[FileSize] = FILE_SIZES) -> int:
    """Puts files together where a table has too many.

    Args:
        delta: the table, as it is now; it is the newer version afterwards.
        sizes: the sizes, the largest first.

    Returns:
        How many files were replaced.
    """
    replaced = 0
    for size in sizes:
        there = delta.get_add_actions().column("size_bytes").to_pylist()
        if sum(each < size.target_bytes // 2 for each in there) > size.most_smaller:
            done = delta.optimize.compact(target_size=size.target_bytes)
            replaced += int(done["numFilesRemoved"])
    if replaced:
        _log.debug("%s files of %s were put together", replaced, delta.table_uri)
    return replaced
