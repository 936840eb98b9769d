"""A standalone Spark cluster under test: a master and workers, each at a loopback address of its own.

Owns their processes; what a worker has started, executors and their Python, ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from tests.support.waiting import wait_until

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_READY = re.compile(r"Starting Spark master at (spark://[0-9.]+:[0-9]+)")
START_S = 120.0
MEMORY_MB = 2048


class SparkCluster:
    """A master and workers of two cores each.

    Args:
        root: Holds their logs and what executors write.
        workers: How many; their addresses are 127.0.0.2 and so on.

    Attributes:
        master: Its URL.
    """

    def __init__(self, root: Path, workers: int) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self.master = ""
        try:
            self._start(workers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> list[str]:
        """The addresses of those that run."""
        return list(self._workers)

    def place_of(self, worker: str) -> Path:
        """Where the executors of a worker have their working directories."""
        return self._root / worker

    def executors(self, worker: str) -> list[int]:
        """The process ids of a worker's executors."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (directory / "cmdline").read_bytes().split(b"\0")
                if (
                    _EXECUTOR.encode() in words
                    and self.place_of(worker) in (directory / "cwd").readlink().parents
                ):
                    found.append(int(directory.name))
        return found

    def kill_worker(self, worker: str) -> None:
        """Ends a worker and its executors as a host that is switched off does."""
        process = self._workers.pop(worker)
        for pid in [process.pid, *self.executors(worker)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Leaves nothing running."""
        for worker in self.workers:
            self.kill_worker(worker)
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, workers: int) -> None:
        log = self._root / "master.log"
        self._run(log, _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")

        def said() -> bool:
            found = _READY.search(log.read_text(errors="replace"))
            self.master = found[1] if found else ""
            return bool(found)

        wait_until(said, START_S, lambda: log.read_text(errors="replace"))
        for number in range(workers):
            address = f"127.0.0.{2 + number}"
            arguments = ("--host", address, "--webui-port", "0", "--cores", "2", "--memory", f"{MEMORY_MB}m")
            self._workers[address] = self._run(
                self._root / f"{address}.log",
                _WORKER,
                *(*arguments, "--work-dir", str(self.place_of(address)), self.master),
            )
        registered = "Registering worker"
        wait_until(lambda: log.read_text(errors="replace").count(registered) == workers, START_S)

    def _run(self, log: Path, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with log.open("ab") as file:
            process = subprocess.Popen([command, main, *arguments], env=environment, stdout=file, stderr=file)
        if main == _MASTER:
            self._processes.append(process)
        return process
