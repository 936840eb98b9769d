"""A broker or name server on this machine as a child process, started, waited for and ended.

Owns the process, the line by which it says that it serves, and the one by which a command says why it ends.

Invariants: one object is one run of the process; the caller ends it, by `with`, `stop`, `kill` or `close`.

Processes and threads: the broker's standard error goes to a file, and of its standard output only the first
lines are read, so that no thread is needed to keep its pipes empty.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Protocol, Self

START_TIMEOUT_S = 100.0
"""A store of many files that was killed is recovered first."""
STOP_TIMEOUT_S = 30.0
"""The broker gives requests in flight 10 s, and its store is closed behind them."""

_READY = re.compile(
    rb"^lakemq (?:broker|nameserver) ready on (https?://\S+:([0-9]+))(?: .*)?\n", re.MULTILINE
)
_ERROR = "lakemq: "
"""Before the line on standard error that says why a command ends (cli/app.py)."""


class NotReady(RuntimeError):
    """A broker ended, or its deadline passed, before it said that it serves; the text has the end of its log.

    Args:
        how: What became of it, in a few words.
        log_end: The end of its log.
        exit_code: See below.

    Attributes:
        how: What became of it, in a few words.
        exit_code: How it ended by itself (negative: the signal); None when it ran on and was killed.
        cause: The line of its log that says why, else the last one.
    """

    def __init__(self, how: str, log_end: str, exit_code: int | None) -> None:
        super().__init__(f"the broker did not start, {how}:\n{log_end}")
        self.how = how
        self.exit_code = exit_code
        self.cause = cause_in(log_end)


class Process(Protocol):
    """What is asked of a process that was started: the part of `subprocess.Popen` that is needed here."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None:
        """Its standard input, if a pipe was asked for."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Its standard output, if a pipe was asked for."""

    def poll(self) -> int | None:
        """Returns its exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit code; raises TimeoutExpired when it runs on."""

    def send_signal(self, sig: int) -> None:
        """Sends a signal, if it still runs."""

    def terminate(self) -> None:
        """Sends SIGTERM, if it still runs."""

    def kill(self) -> None:
        """Sends SIGKILL, if it still runs."""


class BrokerProcess:
    """One run of a broker; a context manager that stops it. Constructing it starts the process.

    Args:
        arguments: Those of the command.
        log: Gets the broker's standard error, behind what is in it.
        environment: More environment variables.
        prefix: A command in front of the broker's own that becomes it, as ``setpriv`` does.
        directory: Its working directory; this process's if none is given.
        command: ``serve``, or ``nameserver``, which says that it is ready in the same words.
        ends_with_caller: It stops also when this process is killed: a pipe between them ends then.
        starts: Makes the process, with the arguments of `subprocess.Popen`.

    Attributes:
        endpoint: Its URL, ``http://127.0.0.1:port`` (``https`` with a certificate); empty until it is ready.
        port: That of `endpoint`; 0 until it is ready.
        log: The file of its standard error.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        directory: Path | None = None,
        command: Literal["serve", "nameserver"] = "serve",
        ends_with_caller: bool = False,
        starts: Callable[..., Process] = subprocess.Popen,
    ) -> None:
        self.endpoint = ""
        self.port = 0
        self.log = log
        self._output = b""
        watching = ["--until-stdin-ends"] if ends_with_caller else []
        with log.open("ab") as errors:
            self._log_begins = errors.tell()
            self._process: Process = starts(
                [*prefix, sys.executable, "-m", "lakemq.cli", command, *watching, *arguments],
                stdin=subprocess.PIPE if ends_with_caller else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **(environment or {})},
                cwd=directory,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Returns when the broker serves.

        Raises:
            NotReady: It ended or the time is up. After this or any other exception no process is left.
        """
        if self.endpoint:
            return self
        try:
            ready = self._read_ready(time.monotonic() + timeout_s)
        except BaseException:  # interrupted: the caller has no context to leave yet
            self.close()
            raise
        if ready is None:
            # The end of its output is the end of the process, give or take an instant.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            code = self._process.poll()
            self.close()
            reason = f"no sign of it in {timeout_s:g} s" if code is None else f"exit code {code}"
            raise NotReady(reason, self.log_end(), code)
        self.endpoint, self.port = ready[1].decode(), int(ready[2])
        return self

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, if the process still runs."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end of the process and returns its exit code (negative: the signal).

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Asks the broker to end, kills it when it does not in time, and returns its exit code."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.close()

    def kill(self) -> int:
        """Ends the broker as a crash does, with SIGKILL, and returns its exit code."""
        return self.close()

    def close(self) -> int:
        """Leaves nothing of it: kills it if it runs; returns its exit code."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def log_end(self, size: int = 3_000) -> str:
        """Returns the last characters of what this run wrote into the log."""
        with self.log.open("rb") as written:
            written.seek(self._log_begins)
            return written.read().decode("utf-8", "replace")[-size:]

    def _read_ready(self, deadline: float) -> re.Match[bytes] | None:
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while (found := _READY.search(self._output)) is None:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return None
                piece = os.read(output.fileno(), 4_096)
                if not piece:
                    return None
                self._output += piece
        return found


def cause_in(log: str) -> str:
    """Returns the line of a command's standard error that says why it ended, else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    own = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return (own or lines or ["it said nothing"])[-1]
