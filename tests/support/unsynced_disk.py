"""A disk that loses power, for what writes files in Python.

Owns what was synced: the content of each file and the names in each directory below one. A power cut takes
all else back: a file that was never synced is empty, a directory has the names that it had at its last sync,
or those that it has by now.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from store_native.durable_files import FileDisk


class PowerCut(Exception):
    """The power fails at this call."""


class UnsyncedDisk(FileDisk):
    """Everything below `root` counts as synced at first.

    Args:
        fails_at: The number of the call at which the power fails, before it is done; None: not by itself.
    """

    def __init__(self, root: Path, fails_at: int | None = None) -> None:
        self._root = root
        self._left = fails_at
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int | None]] = {}
        #: Files that are held open, so that no other one gets their inodes.
        self._held = ExitStack()
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                self._names[path] = self._listed(path)
            else:
                self._contents[path.stat().st_ino] = path.read_bytes()

    def __enter__(self) -> UnsyncedDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def sync(self, file: IO[bytes]) -> None:
        self._called()
        file.flush()
        path = Path(file.name)
        self._contents[path.stat().st_ino] = path.read_bytes()
        self._held.enter_context(path.open("rb"))

    def sync_directory(self, directory: Path) -> None:
        self._called()
        if directory.is_relative_to(self._root):
            self._names[directory] = self._listed(directory)

    def lose_power(self, *, names_kept: bool = False) -> None:
        """Leaves what was synced, and nothing else; or the names of now, and of the files what was synced."""
        if names_kept:
            for path in [self._root, *self._root.rglob("*")]:
                if path.is_dir():
                    self._names[path] = self._listed(path)
        self._restore(self._root)

    def _called(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise PowerCut

    def _listed(self, directory: Path) -> dict[str, int | None]:
        """Names with their inodes; a directory has none."""
        names: dict[str, int | None] = {}
        for path in directory.iterdir():
            names[path.name] = None if path.is_dir() else path.stat().st_ino
            if not path.is_dir():
                self._held.enter_context(path.open("rb"))
        return names

    def _restore(self, directory: Path) -> None:
        names = self._names.get(directory, {})
        for path in directory.iterdir():
            if path.is_dir() and path.name not in names:
                shutil.rmtree(path)
            elif not path.is_dir():
                path.unlink()
        for name, inode in names.items():
            if inode is None:
                (directory / name).mkdir(exist_ok=True)
                self._restore(directory / name)
            else:
                (directory / name).write_bytes(self._contents.get(inode, b""))
