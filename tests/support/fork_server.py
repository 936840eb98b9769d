"""Brokers and name servers of tests as forks of one process that has imported what they need.

Owns that process, one for each process that starts brokers, and a fork's process object. More than half of
the processor time of a broker that a test starts goes into imports, and a run of all tests starts hundreds.

Invariants: a fork begins where ``python -m lakemq.cli`` does, with the arguments, environment, directory and
files it was given; it ends as an interpreter does. The server has one thread, and ends with its caller.

Processes: beside each fork stands a watcher, its parent, which says by a pipe who it is and how it ended.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

_COMMAND = [sys.executable, "-m", "lakemq.cli"]
_WARM = ("lakemq.cli.start", "lakemq.cli.app", "lakemq.cli.commands.serve", "lakemq.cli.commands.nameserver")
_INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that a process ignores from its start when its caller does."""
_LARGEST_REQUEST = 1 << 20
_REPORT = struct.Struct("=i")


def can_fork(environment: Mapping[str, str], prefix: Sequence[str] = ()) -> bool:
    """Tells whether a fork is what a process of its own would be.

    The linker and the interpreter read their variables when a process starts, and a command in front of
    another becomes it: none of both reaches a fork.
    """
    return not prefix and not any(name.startswith(("LD_", "PYTHON")) for name in environment)


class ForkedProcess:
    """A fork of the server that runs a command of `lakemq`; what `subprocess.Popen` is to a process.

    Args:
        command: ``python -m lakemq.cli`` of this interpreter, and its arguments.
        stdin: DEVNULL: nothing else reaches a fork.
        stdout: A pipe, whose end is `stdout`.
        stderr: An open file that it writes to.
        bufsize: As Popen's; pipes have no buffer here.
        env: All its environment variables.
        cwd: Its directory; this process's if none is given.

    Attributes:
        pid: Its process id.
        returncode: None while it runs, then as Popen's (negative: the signal).
        stdin: None.
        stdout: The pipe's end.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: IO[bytes],
        bufsize: int,
        env: Mapping[str, str],
        cwd: Path | None,
    ) -> None:
        assert list(command[: len(_COMMAND)]) == _COMMAND, command
        assert (stdin, stdout, bufsize) == (subprocess.DEVNULL, subprocess.PIPE, 0)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self._lock = threading.Lock()
        request = {
            "arguments": command[len(_COMMAND) :],
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "ignored": [number for number in _INHERITED if signal.getsignal(number) is signal.SIG_IGN],
        }
        output, its_output = os.pipe()
        self._report, its_report = os.pipe()
        try:
            _server(os.getpid()).fork(request, [its_output, stderr.fileno(), its_report])
        finally:
            os.close(its_output)
            os.close(its_report)
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.pid: int = _REPORT.unpack(os.read(self._report, _REPORT.size))[0]

    def poll(self) -> int | None:
        """Returns how it ended, or None while it runs."""
        with self._lock:
            if self.returncode is None and select.select([self._report], [], [], 0)[0]:
                self.returncode = _REPORT.unpack(os.read(self._report, _REPORT.size))[0]
                os.close(self._report)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns how it ended.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if timeout is not None and left is not None and left <= 0:
                raise subprocess.TimeoutExpired(_COMMAND, timeout)
            # Another thread that waits may take the report and close it first: `poll` says so then.
            with contextlib.suppress(OSError):
                select.select([self._report], [], [], 1.0 if left is None else min(left, 1.0))
        return code

    def send_signal(self, sig: int) -> None:
        """Sends a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Sends SIGTERM, if it still runs."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The caller's side of the process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(its_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                cwd=Path(__file__).resolve().parents[2],
            )

        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: dict[str, Any], files: list[int]) -> None:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)


@cache
def _server(caller: int) -> _Server:
    """Returns the server of a process; one that was forked itself gets its own."""
    return _Server()


def _serve(requests: socket.socket) -> int:
    """Forks for each request until there is none; returns, in each fork, what its command returned."""
    for module in _WARM:
        __import__(module)
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: a fork would have one of them, and the locks of the others"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the watchers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a terminal sends is for the forks, and their caller
    while True:
        data, files, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 3)
        if not data:
            return 0
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _watch(json.loads(data), *files)
        for file in files:
            os.close(file)


def _watch(request: dict[str, Any], output: int, errors: int, report: int) -> int:
    fork = os.fork()
    if fork == 0:
        os.close(report)
        return _run(request, output, errors)
    os.close(output)
    os.close(errors)
    try:
        os.write(report, _REPORT.pack(fork))
        status = os.waitpid(fork, 0)[1]
        os.write(report, _REPORT.pack(os.waitstatus_to_exitcode(status)))
    except BrokenPipeError:  # whoever started it is gone
        pass
    finally:
        os._exit(0)


def _run(request: dict[str, Any], output: int, errors: int) -> int:
    from lakemq.cli.start import main

    for number in _INHERITED:
        handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else handler)
    for file, standard in ((output, 1), (errors, 2)):
        os.dup2(file, standard)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = [_COMMAND[-1], *request["arguments"]]
    return main()


if __name__ == "__main__":
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
