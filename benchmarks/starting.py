"""P15 and P16: what a start costs after a crash and with many queues, and what an idle broker holds.

Owns the stores that are started and reading a process's memory. How a store gets into its state is
store_native/examples/start_bench.rs.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import Scale
from benchmarks.server import LakeMQ
from tests.support.peer_brokers import RocketMQ
from tests.support.peer_jars import REPOSITORY

EXAMPLE: Final = "start_bench"
BUILD_TIMEOUT_S: Final = 900
KIB: Final = 1024.0


def starts(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P15: a crash start over a long and a short log, a clean start with many queues."""
    directory.mkdir(parents=True, exist_ok=True)
    long, short = directory / "long", directory / "short"
    _example("fill", long, scale.long_log_bytes)
    _example("fill", short, scale.short_log_bytes)
    sizes = f"{scale.long_log_bytes / (1 << 30):g} GiB", f"{scale.short_log_bytes / (1 << 30):g} GiB of log"
    measurement = Measurement(
        "P15",
        "crash-start",
        1.2,
        "ms",
        f"20,000 messages behind the checkpoint, {sizes[0]}",
        sizes[1],
        at_most=True,
    )
    yield Comparison(
        measurement, functools.partial(_crash_start, long), functools.partial(_crash_start, short)
    )
    with ExitStack() as stack:
        ours, theirs = directory / "queues", directory / "queues-rocketmq"
        for folder in (ours, theirs):
            folder.mkdir(parents=True)
            _example("queues", folder / "store", scale.queues)
        rocketmq = stack.enter_context(
            RocketMQ(theirs, store=theirs / "store", commitlog_file_size=1 << 30, heap="1g")
        )
        rocketmq.stop_broker()
        measurement = Measurement(
            "P15",
            f"clean-start-{scale.queues}-queues",
            0.5,
            "s",
            "process started until it serves",
            "RocketMQ's broker on an equal store",
            at_most=True,
        )
        yield Comparison(
            measurement, functools.partial(_start_lakemq, ours), functools.partial(_start_rocketmq, rocketmq)
        )


def memory(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P16: resident memory of an idle broker, and what a queue adds to it, with its descriptors."""
    idle, full = directory / "idle", directory / "full"
    full.mkdir(parents=True)
    _example("queues", full / "store", scale.queues)
    resident = functools.partial(_of_running, idle, _resident_kib)
    yield Comparison(_value("idle-broker", 100.0, "MiB"), lambda: resident() / KIB, None)

    def a_queue() -> float:
        return (_of_running(full, _resident_kib) - resident()) / scale.queues

    yield Comparison(_value("memory-per-queue", 4.0, "KiB"), a_queue, None)

    def descriptors() -> float:
        return _of_running(full, _descriptors) - _of_running(idle, _descriptors)

    yield Comparison(_value(f"descriptors-of-{scale.queues}-queues", None, "descriptors"), descriptors, None)


def _value(name: str, goal: float | None, unit: str) -> Measurement:
    return Measurement(
        "P16", name, goal, unit, "after a clean start, idle", "", at_most=True, relation="value"
    )


def _crash_start(store: Path) -> float:
    return float(json.loads(_example("crash-open", store).splitlines()[-1])["open_ms"])


def _start_lakemq(directory: Path) -> float:
    started = time.perf_counter()
    with LakeMQ(directory, "sync"):
        return time.perf_counter() - started


def _start_rocketmq(rocketmq: RocketMQ) -> float:
    started = time.perf_counter()
    rocketmq.start()
    took = time.perf_counter() - started
    rocketmq.stop_broker()
    return took


def _of_running(directory: Path, read: Callable[[Path], float]) -> float:
    with LakeMQ(directory, "sync") as broker:
        return read(Path("/proc") / str(broker.pid))


def _resident_kib(process: Path) -> float:
    for line in (process / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise RuntimeError(f"{process} tells no resident memory")


def _descriptors(process: Path) -> float:
    return float(sum(1 for _ in (process / "fd").iterdir()))


@functools.cache
def _built() -> Path:
    manifest = REPOSITORY / "store_native" / "Cargo.toml"
    command = ["cargo", "build", "--release", "--quiet", "--locked", "--no-default-features"]
    command += ["--manifest-path", str(manifest), "--example", EXAMPLE]
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--manifest-path", str(manifest)]
    described: dict[str, Any] = json.loads(subprocess.run(metadata, check=True, capture_output=True).stdout)
    return Path(described["target_directory"]) / "release" / "examples" / EXAMPLE


def _example(*arguments: object) -> str:
    command = [str(_built()), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{EXAMPLE} {arguments[0]}: {done.stderr[-1500:]}")
    return done.stdout
