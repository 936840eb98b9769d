"""Starts and stops real brokers: ``lakemq serve`` as a subprocess on a free port.

Owns the subprocess.

Invariants: whatever a test did, :meth:`BrokerProcess.close` leaves no process behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakemq.client import Client

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30

SMALL_FILES = """\
[store]
commitlog_file_size = 67108864
consumequeue_file_entries = 30000
index_slots = 50000
index_entries = 200000
"""
"""A store that costs little disk: the real one's files are 1 GiB and 420 MB, sparse."""


class BrokerProcess:
    """A broker under test.

    Args:
        directory: Holds the store, the configuration and the log.
        flush: The store's flush mode.
        config: TOML that follows SMALL_FILES's tables; must not repeat ``[store]``.
        store: More lines for the table ``[store]``.
        broker_name: The broker's name.
        arguments: More arguments of ``lakemq serve``.
        environment: More environment variables.
        descriptors: How many files the process may have open, soft and hard limit.

    Attributes:
        endpoint: ``http://127.0.0.1:port``.
        store_path: The store's directory.
        pid: Of the running process.
    """

    def __init__(
        self,
        directory: Path,
        *,
        flush: str = "sync",
        config: str = "",
        store: str = "",
        broker_name: str = "broker-a",
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store_path = directory / "store"
        self.log_path = directory / "broker.log"
        self._config = directory / "broker.toml"
        self._config.write_text(f"{SMALL_FILES}{store}\n{config}")
        self._arguments = ("--flush", flush, "--broker-name", broker_name, *arguments)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._descriptors = descriptors
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        """Where the broker answers; stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port of :attr:`endpoint`."""
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def client(self) -> Client:
        """Returns a new client of this broker."""
        from lakemq.client import Client

        return Client(self.endpoint)

    def start(self) -> None:
        """Starts the broker and returns when it serves; does nothing when it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "lakemq.cli", "serve", "--config", str(self._config)]
        command += ["--store", str(self.store_path), "--port", str(self._port), *self._arguments]
        if self._descriptors is not None:
            command = ["bash", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "bash", *command]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).resolve().parents[2],
                env=self._environment,
            )
        # The ready line, or the end of a process that failed: no timer is needed for either.
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("lakemq broker ready on "):
            code = self._process.wait(START_TIMEOUT_S)
            raise RuntimeError(f"the broker did not start, exit status {code}:\n{self.log()}")
        self._port = int(line.split()[4].rpartition(":")[2])

    def kill(self) -> None:
        """Ends the broker as a crash does: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stops the broker gracefully; returns its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Starts it again on the same store and port; stops it gracefully first if it runs."""
        self.stop()
        self.start()

    def log(self) -> str:
        """Returns what the broker wrote to standard error."""
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """Leaves nothing running."""
        if self._process is not None:
            if self._process.poll() is None:
                self.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code
