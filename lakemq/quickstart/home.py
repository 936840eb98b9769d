"""The quick start's directory: what is in it, and emptying it for the next run.

Owns the mark of a directory that a quick start made.

Invariants: nothing of a broker or a group that runs is deleted, nor of a directory that is somebody else's.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from delta_tables.ledger import ledger_at
from delta_tables.views import TABLES
from lakemq.terminal.failure import CommandFailed
from store_native.errors import Unavailable

_MARK = ".lakemq-quickstart"


def empty_home(directory: Path) -> Path:
    """Empties a directory of an earlier quick start.

    Raises:
        CommandFailed: It is somebody else's, or a broker or a group that runs uses it; nothing is deleted.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / _MARK).exists():
        raise CommandFailed(f"{directory} is not empty and no quick start made it; give another --dir")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()
    with _unused(directory):
        for name in ("store", "ledger", "checkpoint"):
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / "report.json").unlink(missing_ok=True)
    return directory


@contextmanager
def _unused(directory: Path) -> Iterator[None]:
    """Holds the locks of a store and a ledger, so that nobody begins to use them either."""
    with ExitStack() as stack:
        lock = directory / "store" / "lock"
        if lock.exists():
            file = stack.enter_context(lock.open("r+b"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # RocketMQ's broker holds this one
            except OSError as error:
                raise _in_use(f"a broker serves {lock.parent}") from error
        if (directory / "ledger").exists():
            for held in ledger_at(str(directory / "ledger")).writer_locks(TABLES):
                try:
                    held.acquire()
                except Unavailable as error:
                    raise _in_use(error.detail) from error
                stack.callback(held.release)
        yield


def _in_use(how: str) -> CommandFailed:
    return CommandFailed(f"{how}: a quick start would delete it; stop that first, or give another --dir")
