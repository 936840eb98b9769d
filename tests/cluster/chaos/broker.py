"""A real `lakemq serve` that dies on command: small files, injected faults, SIGKILL.

Owns its configuration file.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from lakemq.broker_process import BrokerProcess, NotReady
from tests.support.processes import ends_with_parent

START_TIMEOUT_S: Final = 30.0
# Small enough that a round of a few thousand messages rolls the log, the queues and the index several times.
STORE_SETTINGS: Final[dict[str, int | str]] = {
    "commitlog_file_size": 1 << 20,
    "consumequeue_file_entries": 500,
    "index_slots": 997,
    "index_entries": 2_000,
    "checkpoint_interval_ms": 50,
    "flush_interval_ms": 20,
    "delay_levels": "1s 2s",
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
        limits: more settings of `[limits]`, for the next start.
    """

    def __init__(self, directory: Path, flush: str, port: int | None = None) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.port = port or 0
        self._fixed_port = port or 0
        self._flush = flush
        self.arguments: tuple[str, ...] = ()
        self.limits: dict[str, float] = {}
        self._run: BrokerProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def alive(self) -> bool:
        """Tells whether the process runs."""
        return self._run is not None and self._run.alive

    def start(self, faults: str = "") -> bool:
        """Starts the broker; returns False when an injected fault killed it before it was ready.

        Raises:
            NotReady: It ended without having been told to, or did not get ready in time.
        """
        self.launch(faults)
        try:
            self.wait_ready()
        except NotReady as error:
            if faults and error.exit_code == -signal.SIGKILL:
                return False
            raise
        return True

    def wait_ready(self) -> None:
        """Returns when the process that was launched serves.

        Raises:
            NotReady: It ended, or did not get ready in time.
        """
        assert self._run is not None
        self.port = self._run.wait_ready(START_TIMEOUT_S).port

    def launch(self, faults: str = "") -> BrokerProcess:
        """Starts the process without waiting for it."""
        values: dict[str, str | int] = {
            **STORE_SETTINGS,
            "path": str(self.store),
            "flush": self._flush,
            "faults": faults,
        }
        lines = [
            "[http]",
            f"port = {self._fixed_port}",
            "[limits]",
            f"max_message_bytes = {LARGEST_MESSAGE}",
            *(f"{name} = {value}" for name, value in self.limits.items()),
            "[store]",
        ]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
        configuration = self.directory / "lakemq.toml"
        configuration.write_text("\n".join(lines) + "\n")
        arguments = ["--config", str(configuration), *self.arguments]
        self._run = BrokerProcess(arguments, self.directory / "broker.log", prefix=ends_with_parent())
        return self._run

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._run is not None:
            self._run.kill()

    def stop(self) -> None:
        """Stops the broker gracefully."""
        if self._run is not None:
            self._run.stop()


def _toml(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
