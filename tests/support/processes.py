"""Runs a foreign server process for a test or a bench: started, asked until it answers, always stopped.

Owns the process and its log file. No process outlives the Python that started it: at exit what is left is
killed, and the kernel kills it when this process is itself killed.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support import waiting

LOOPBACK: Final = "127.0.0.1"
_LISTENING_PORTS: Final = (10_240, 32_000)
"""Below the ports that Linux gives to outgoing connections (32,768 and up, if not set otherwise)."""
_running: set[ServerProcess] = set()


class NotReady(RuntimeError):
    """A server ended before it answered; the text carries the end of its log."""


class ServerProcess:
    """One child process with its output in a file."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ends_with_parent(), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )
        _running.add(self)

    @property
    def pid(self) -> int:
        """Returns the process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tells whether the process still runs."""
        return self._process.poll() is None

    def wait_until(self, answers: Callable[[], bool], timeout_s: float) -> None:
        """Asks again and again until the server answers.

        Raises:
            NotReady: The process ended.
            AssertionError: The deadline passed; the text carries the end of the log, too.
        """

        def ready() -> bool:
            if answers():
                return True
            if not self.alive:
                raise NotReady(f"ended with {self._process.returncode}\n{self.log_end()}")
            return False

        waiting.wait_until(ready, timeout_s, lambda: f"no answer in {timeout_s} s\n{self.log_end()}")

    def wait(self, timeout_s: float) -> int:
        """Waits for the end of the process and returns its exit code (negative: the signal)."""
        code = self._process.wait(timeout_s)
        _running.discard(self)
        return code

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends the process gracefully; kills it when it does not go in time."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.wait(timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL and reaps the process."""
        if self.alive:
            self._process.kill()
        self.wait(10)

    def log_end(self, size: int = 3000) -> str:
        """Returns the last characters of the log."""
        return self.log.read_text(errors="replace")[-size:]


def ends_with_parent() -> list[str]:
    """Returns the command in front of another that has the kernel kill it when this process is killed."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


@atexit.register
def _kill_what_is_left() -> None:
    for process in list(_running):
        process.kill()


def answers_on(port: int) -> bool:
    """Tells whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_ports(*offsets: int) -> int:
    """Returns a port p such that every p + offset is free now.

    RocketMQ takes listenPort - 2 and listenPort + 1 beside the port it is given. Between this look and the
    server's bind somebody else may take a port, so none is from the range that outgoing connections use.
    """
    wanted = offsets or (0,)
    while True:
        port = random.randrange(*_LISTENING_PORTS)
        if all(_is_free(port + offset) for offset in wanted):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
