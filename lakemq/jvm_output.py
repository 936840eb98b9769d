"""What a JVM says, on standard output and error: into a file while it starts, to our standard error later.

Owns the pipe and the moment from which it is passed on. While a session starts, Java, Ivy and Log4j say some
thirty lines that nobody asked for; afterwards it is what a person's own functions print in the workers.

Invariants: nothing is lost and the order stays; what the JVM says never waits for more than our own standard
error does.

Threads: one, which reads until every process that writes has ended; it ends with this process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path

_PASSED_WITHIN_S = 10.0
_AT_ONCE = 65_536
_LAST_LINES = 3
"""Java itself refuses an option in so many."""


class JvmOutput:
    """The standard output and error of a JVM that is to be started.

    Args:
        first: The file that gets what is said until `pass_on`; it is appended to.

    Attributes:
        writer: The descriptor to start the JVM with, as both.
    """

    def __init__(self, first: str | os.PathLike[str]) -> None:
        first = Path(first)
        first.parent.mkdir(parents=True, exist_ok=True)
        self._first = first
        self._file = first.open("ab", buffering=0)
        self._begin = self._file.seek(0, os.SEEK_END)
        self._marker = f"{secrets.token_hex(16)}\n".encode()
        self._passes_on = threading.Event()
        reader, self.writer = os.pipe()
        threading.Thread(target=self._read, args=(reader,), name="jvm-output", daemon=True).start()

    def pass_on(self) -> None:
        """Has what is said from now on go to our standard error; what was said is in the file then."""
        os.write(self.writer, self._marker)  # behind what was said, for it is one pipe
        os.close(self.writer)
        self._passes_on.wait(_PASSED_WITHIN_S)

    def reason(self) -> str:
        """Returns what says, of all that is in the file, why a JVM did not start."""
        with self._first.open("rb") as file:
            file.seek(self._begin)
            lines = [line.rstrip() for line in file.read().decode("utf-8", "replace").splitlines()]
        plain = [line for line in lines if line and not line[0].isspace()]
        thrown = [line for line in plain if line.startswith("Exception in thread")]
        return " ".join(thrown[:1] or plain[-_LAST_LINES:] or ["it said nothing"])

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as said:
            with self._file:
                for line in said:
                    if line.endswith(self._marker):  # behind a line that was not ended, perhaps
                        self._file.write(line.removesuffix(self._marker))
                        break
                    self._file.write(line)
            self._passes_on.set()
            while some := said.read1(_AT_ONCE):
                with contextlib.suppress(OSError):  # ours is closed: the JVM shall not wait for that
                    _write_all(some)


def _write_all(some: bytes) -> None:
    while some:
        some = some[os.write(2, some) :]
