"""A real `lakemq serve` that dies on command: small files, injected faults, SIGKILL.

Owns the process and its configuration file.
"""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from typing import Final

from tests.support.processes import LOOPBACK, NotReady, ServerProcess, free_ports

START_TIMEOUT_S: Final = 30.0
# Small enough that a round of a few thousand messages rolls the log, the queues and the index several times.
STORE_SETTINGS: Final[dict[str, int]] = {
    "commitlog_file_size": 1 << 20,
    "consumequeue_file_entries": 500,
    "index_slots": 997,
    "index_entries": 2_000,
    "checkpoint_interval_ms": 50,
    "flush_interval_ms": 20,
}
LARGEST_MESSAGE: Final = 512 << 10  # fits the small log file


class ChaosBroker:
    """One broker on one store directory, started and killed many times.

    Args:
        directory: holds the store, the configuration and the log of the process.
        flush: `sync` or `async`.
        port: the same at every start; None takes a free one each time.

    Attributes:
        arguments: more arguments of `lakemq serve`, for the next start.
    """

    def __init__(self, directory: Path, flush: str, port: int | None = None) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.port = 0
        self._fixed_port = port
        self._flush = flush
        self.arguments: tuple[str, ...] = ()
        self._process: ServerProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def alive(self) -> bool:
        """Tells whether the process runs."""
        return self._process is not None and self._process.alive

    def start(self, faults: str = "") -> bool:
        """Starts the broker; returns False when an injected fault killed it before it was ready.

        Raises:
            NotReady: It ended without having been told to, or did not get ready in time.
        """
        self.port = self._fixed_port or free_ports()
        process = self.launch(faults)
        try:
            process.wait_until(self.ready, START_TIMEOUT_S)
        except NotReady:
            if faults and not process.alive and process.wait(1) == -9:
                return False
            raise
        return True

    def launch(self, faults: str = "") -> ServerProcess:
        """Starts the process without waiting for it."""
        self.port = self.port or free_ports()
        values: dict[str, str | int] = {
            **STORE_SETTINGS,
            "path": str(self.store),
            "flush": self._flush,
            "faults": faults,
        }
        lines = [
            "[http]",
            f"port = {self.port}",
            "[limits]",
            f"max_message_bytes = {LARGEST_MESSAGE}",
            "[store]",
        ]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
        configuration = self.directory / "lakemq.toml"
        configuration.write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "lakemq.cli", "serve", "--config", str(configuration)]
        command += self.arguments
        self._process = ServerProcess(command, self.directory / "broker.log")
        return self._process

    def ready(self) -> bool:
        """Asks /readyz."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Stops the broker gracefully."""
        if self._process is not None:
            self._process.stop()

    def log_end(self) -> str:
        """Returns the end of the broker's log."""
        return self._process.log_end() if self._process else ""


def _toml(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
