"""Small files that are there for good once they are written, beside those that the store's Rust part keeps.

Owns the order of the disk's calls: a draft's bytes are on the disk before it gets the file's name, and the
name is before the caller goes on. :class:`FileDisk` has the calls; a test gives one that loses power.

Invariants: a power cut leaves a replaced file as it was or as it is to be, never half; a directory is on the
disk with the file that it was made for.

Callers: the broker's files beside the store, the jobs' in checkpoints, exports of dead letters.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Final

#: A mounted file system may know no sync of a directory, or not let this user ask for it.
_NOT_TO_BE_HAD: Final = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM}


class FileDisk:
    """The calls that bring files to the disk."""

    def sync(self, file: IO[bytes]) -> None:
        """Returns when what was written to a file is on the disk.

        Raises:
            OSError: It may not be.
        """
        file.flush()
        os.fsync(file.fileno())

    def sync_directory(self, directory: Path) -> None:
        """Returns when the names in a directory are on the disk, where its file system can be asked.

        Raises:
            OSError: They may not be.
        """
        try:
            opened = os.open(directory, os.O_RDONLY)
        except PermissionError:
            return
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in _NOT_TO_BE_HAD:
                raise
        finally:
            os.close(opened)


DISK: Final = FileDisk()
"""The machine's."""


def replace_file(file: Path, content: bytes, disk: FileDisk = DISK) -> None:
    """Writes a file, for good, in place of the one of its name; makes its directory where there is none.

    Raises:
        OSError: Any of the disk's; the file is as it was, or as it is to be and not surely for good.
    """
    make_directory(file.parent, disk)
    draft = file.with_suffix(".draft")
    with draft.open("wb") as out:
        out.write(content)
        disk.sync(out)
    draft.replace(file)
    disk.sync_directory(file.parent)


def make_directory(directory: Path, disk: FileDisk = DISK) -> None:
    """Makes a directory, and those above it that are missing, for good.

    Raises:
        OSError: Any of the disk's.
    """
    missing = []
    for each in (directory, *directory.parents):
        if each.is_dir():
            break
        missing.append(each)
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        disk.sync_directory(made.parent)
