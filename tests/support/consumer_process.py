"""A real `lakemq consume` in a session of its own; a kill takes its JVM and workers along."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.waiting import wait_until

START_TIMEOUT_S = 240.0


class ConsumerProcess:
    """One run of `lakemq consume`; leaves no process behind when its block ends.

    Args:
        directory: working directory; the handler's module is beside it.
        arguments: the command's arguments.
        halt: halt after the ledger commit of the first batch handled, and say its number.
        halts: something else makes it halt, and says so in the pipe `halted` of the directory.
        module: what is run in the place of the command line, with the same arguments.
        environment: variables beside this process's own.

    Attributes:
        shown: what `await_started` has read of standard output.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        halt: bool = False,
        halts: bool = False,
        module: Sequence[str] = ("lakemq.cli", "consume"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.shown = ""
        self._fifo = directory / "halted"
        self.log_path = directory / "consume.log"
        extra: list[str] = []
        if halt or halts:
            self._fifo.unlink(missing_ok=True)
            os.mkfifo(self._fifo)
            # Open before the writer exists, and for writing too: no end of file between writers.
            self._halted = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK)
        if halt:
            extra = ["--halt-after-ledger-commit", str(self._fifo)]
        root = Path(__file__).resolve().parents[2]
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *module, *arguments, *extra],
                cwd=directory,
                env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()

    def halted_at(self) -> int:
        """Waits until the process halts and returns the batch it halted in."""
        if not select.select([self._halted], [], [], START_TIMEOUT_S)[0]:
            raise AssertionError(f"the consumer did not reach a ledger commit:\n{self.log()}")
        return int(os.read(self._halted, 100))

    def await_started(self) -> None:
        """Waits for the line that says that all streams run."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.shown += line.decode()
            if line.startswith(b"group "):
                return
        raise AssertionError(f"the consumer ended before it started:\n{self.log()}")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits while the consumer runs."""

        def is_so() -> bool:
            assert self.process.poll() is None, f"the consumer ended:\n{self.log()}"
            return condition()

        wait_until(is_so, START_TIMEOUT_S, self.log)

    def await_line(self, file: Path) -> None:
        """Waits until a handler has written a line into a file."""
        self.wait_for(lambda: file.exists() and "\n" in file.read_text())

    def terminate(self) -> None:
        """Asks the process to stop, and with it all of its process group, as `timeout` and supervisors do."""
        os.killpg(self.process.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Waits for the end and returns the exit code."""
        return self.process.wait(START_TIMEOUT_S)

    def processes(self) -> list[int]:
        """The JVM and all that it has started."""
        return [each for child in _children(self.process.pid) for each in _with_children(child)]

    def kill(self) -> None:
        """SIGKILL for the process, its JVM and its workers, at once."""
        for leader in [self.process.pid, *_children(self.process.pid)]:  # the JVM leads a group of its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log(self) -> str:
        """What the process wrote to standard error."""
        return self.log_path.read_text(errors="replace")


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _with_children(pid: int) -> list[int]:
    return [pid, *(each for child in _children(pid) for each in _with_children(child))]


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
