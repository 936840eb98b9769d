"""What the measurements were made on: versions, cores, the disk's fdatasync and the memory's copy rate.

Owns two tiny ones of the machine, that let a reader compare another machine's.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tests.support.peer_brokers import java_version
from tests.support.peer_jars import POMS

PACKAGES: Final = ("pyspark", "delta-spark", "pyarrow", "uvicorn", "fastapi", "uvloop", "httptools")
SYNCS: Final = 200
COPY_BYTES: Final = 64 << 20


def describe(directory: Path) -> dict[str, Any]:
    """Returns versions and the machine's own rates, fdatasync measured in `directory`."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "java": java_version(),
        "lakemq": _version("lakemq"),
        "commit": _commit(),
        **{name: _version(name) for name in PACKAGES},
        "rocketmq": _pom_version("rocketmq", "rocketmq.version"),
        "kafka": _pom_version("kafka", "kafka.version"),
        "fdatasync_4k_ms": round(fdatasync_ms(directory), 4),
        "memcpy_gib_s": round(memcpy_gib_s(), 2),
    }


def fdatasync_ms(directory: Path) -> float:
    """Returns the median time of a 4 KiB write with fdatasync."""
    path = directory / "fdatasync.probe"
    times = []
    with path.open("wb") as file:
        file.write(bytes(4096 * SYNCS))
        file.flush()
        os.fsync(file.fileno())
        for at in range(SYNCS):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, at * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    path.unlink()
    return statistics.median(times) * 1000


def memcpy_gib_s() -> float:
    """Returns the rate of copying 64 MiB in memory, best of 5."""
    source, target = bytes(COPY_BYTES), bytearray(COPY_BYTES)
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - begun)
    return COPY_BYTES / best / (1 << 30)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "none"


def _pom_version(peer: str, name: str) -> str:
    text = (POMS / peer / "pom.xml").read_text()
    return text.partition(f"<{name}>")[2].partition("<")[0]


if __name__ == "__main__":
    print(describe(Path.cwd()), file=sys.stdout)
