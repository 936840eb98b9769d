"""A real broker as a child process, on a free port, with a store of its own.

Owns the process: started, waited for, stopped, never left behind.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from lakemq.terminal.failure import CommandFailed

_READY = "lakemq broker ready on "
_ERROR = "lakemq: "
_STOP_S = 30.0

# The flights need 200 MB of log; the defaults reserve gigabytes for a store that is to grow.
_CONFIG = """\
[store]
path = "{store}"
commitlog_file_size = 268435456
consumequeue_file_entries = 300000
index_slots = 500000
index_entries = 2000000
"""


class BrokerProcess:
    """``lakemq serve`` on 127.0.0.1; a context manager that stops it.

    Args:
        home: Gets the store, the broker's configuration and its log.

    Attributes:
        endpoint: Where it answers, once entered.
        config: The configuration file; ``lakemq serve --config`` starts the same broker again.
    """

    def __init__(self, home: Path) -> None:
        self.endpoint = ""
        self.config = home / "broker.toml"
        self._store = home / "store"
        self._log = home / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.config.write_text(_CONFIG.format(store=_toml_text(self._store)), encoding="utf-8")
        command = [sys.executable, "-m", "lakemq.cli", "serve", "--config", str(self.config), "--port", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        # Its first line, or the end of its output when it could not start.
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self.stop()
            raise CommandFailed(f"the broker did not start: {cause(self._log)} (all of it: {self._log})")
        self.endpoint = line.removeprefix(_READY).split()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Asks the broker to end, and ends it when it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def wait(self) -> None:
        """Returns when the broker has ended by itself."""
        if self._process is not None:
            self._process.wait()


def cause(log: Path) -> str:
    """Returns the line of a log that says why a command failed, else its last one."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    own = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return (own or lines or ["it said nothing"])[-1]


def _toml_text(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
