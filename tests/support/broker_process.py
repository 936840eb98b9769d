"""A broker under test: one store and one port, over as many runs of ``lakemq serve`` as the test needs.

Owns the configuration of tests' brokers: small files.

Invariants: whatever a test did, :meth:`BrokerProcess.close` leaves no process behind.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakemq import broker_process
from tests.support.fork_server import ForkedProcess, can_fork

if TYPE_CHECKING:
    from lakemq.client import Client

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
        endpoint: ``http://127.0.0.1:port``; https with a certificate.
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
        config_path = directory / "broker.toml"
        config_path.write_text(f"{SMALL_FILES}{store}\n{config}")
        self._arguments = (
            *("--config", str(config_path), "--store", str(self.store_path)),
            *("--flush", flush, "--broker-name", broker_name),
            *arguments,
        )
        self._environment = environment
        limit = f'ulimit -n {descriptors}; exec "$@"'
        self._prefix = () if descriptors is None else ("bash", "-c", limit, "bash")
        self._port = 0
        self._scheme = "http"
        self._run: broker_process.BrokerProcess | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        """Where the broker answers; stays the same over restarts."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port of :attr:`endpoint`."""
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._run is not None
        return self._run.pid

    def client(self) -> Client:
        """Returns a new client of this broker."""
        from lakemq.client import Client

        return Client(self.endpoint)

    def start(self) -> None:
        """Starts the broker and returns when it serves; does nothing when it runs.

        Raises:
            NotReady: It did not start; has its log.
        """
        if self._run is not None and self._run.alive:
            return
        forked = can_fork(self._environment or {}, self._prefix)
        self._run = broker_process.BrokerProcess(
            ["--port", str(self._port), *self._arguments],
            self.log_path,
            environment=self._environment,
            prefix=self._prefix,
            directory=Path(__file__).resolve().parents[2],
            starts=ForkedProcess if forked else subprocess.Popen,
        )
        self._port = self._run.wait_ready().port
        self._scheme = self._run.endpoint.partition(":")[0]

    def kill(self) -> None:
        """Ends the broker as a crash does: SIGKILL."""
        assert self._run is not None
        self._run.kill()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks the broker to stop, by a signal; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        assert self._run is not None
        self._run.send_signal(number)
        self._run.wait(broker_process.STOP_TIMEOUT_S)
        return self._run.close()

    def restart(self) -> None:
        """Starts it again on the same store and port; stops it gracefully first if it runs."""
        self.stop()
        self.start()

    def log(self) -> str:
        """Returns what the broker wrote to standard error."""
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """Leaves nothing running."""
        if self._run is not None:
            self._run.close()
