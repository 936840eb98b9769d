"""The lock that keeps a table of a local ledger to one writing process.

Owns one lock file per table under `_locks`. Delta on a local path excludes writers inside one JVM only, so
two processes would overwrite each other's commits.

Invariants: while the lock is held no other process of this host writes the table, and neither does a JVM that
outlived a killed holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from store_native.errors import from_code

LEFTOVER_JVM_TIMEOUT_S = 30.0


def started(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot, None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def await_exit(pid: int, timeout_s: float) -> None:
    """Returns when a process has ended, or so many seconds are over."""
    import select

    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # gone already
        return
    try:
        ended = select.poll()  # select() takes no descriptor above 1,023
        ended.register(descriptor, select.POLLIN)
        ended.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)


class WriterLock:
    """An exclusive lock on the writing side of one table.

    The operating system drops it with the process, so a crash leaves nothing to clean up. The file
    names the holder, and its JVM: a JVM whose Python side was killed may live for another moment and
    still commit, so the next holder waits until it is gone.

    Args:
        ledger: The ledger's directory.
        table: The table's name.
        clock: Seconds; given in tests.
        await_exit: Waits for a process for so many seconds at most; given in tests.
    """

    def __init__(
        self,
        ledger: Path,
        table: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        await_exit: Callable[[int, float], None] = await_exit,
    ) -> None:
        self._path = ledger / "_locks" / f"{table}.lock"
        self._table = table
        self._clock = clock
        self._await_exit = await_exit
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Takes the lock.

        Raises:
            Unavailable: STORE_LOCKED when another process holds it, with that process in the text.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(file)
            file.close()
            pid = holder.get("pid", "?")
            who = "this process itself" if pid == os.getpid() else "another process"
            raise from_code(
                "STORE_LOCKED",
                f"{who} writes {self._table} of this ledger (process {pid}): "
                "one process writes a table, so this one has to wait for its end; another group takes a "
                "--ledger of its own",
                path=str(self._path),
            ) from None
        self._file = file
        self._await_leftover_jvm(_read(file))
        self._write({"pid": os.getpid()})

    def name_jvm(self, pid: int) -> None:
        """Records the JVM that writes on the holder's behalf."""
        self._write({"pid": os.getpid(), "jvm": pid, "jvm_started": started(pid)})

    def release(self) -> None:
        """Gives the lock back; harmless when it is not held. A JVM that lives on writes no more."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None

    def _await_leftover_jvm(self, holder: dict[str, int]) -> None:
        jvm = holder.get("jvm")
        if jvm is None or self._file is None:
            return
        deadline = self._clock() + LEFTOVER_JVM_TIMEOUT_S
        # The start time tells the JVM apart from a process that got its number later.
        while started(jvm) is not None and started(jvm) == holder.get("jvm_started"):
            if self._clock() > deadline:
                self._file.close()
                self._file = None
                raise from_code(
                    "STORE_LOCKED", f"the JVM {jvm} of a process that was killed still runs: end it first"
                )
            self._await_exit(jvm, 1.0)

    def _write(self, holder: dict[str, int | None]) -> None:
        assert self._file is not None, "the lock is not held"
        self._file.seek(0)
        self._file.truncate()
        json.dump(holder, self._file)
        self._file.flush()


def _read(file: IO[str]) -> dict[str, int]:
    file.seek(0)
    try:
        holder = json.loads(file.read())
    except ValueError:  # empty, or of a holder killed while it wrote its name
        return {}
    return holder if isinstance(holder, dict) else {}
