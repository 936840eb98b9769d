"""LakeMQ's broker and the HTTP load that is put on it, for the bench.

Owns one `lakemq serve` process with default sizes on a scratch store, and the compiled load generator
(Rust, no dependency: one thread with epoll costs the two cores least).
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

from lakemq.broker_process import BrokerProcess
from tests.support.peer_jars import POMS, PeerMissing, peers_home
from tests.support.processes import LOOPBACK, ServerProcess, answers_on, ends_with_parent, free_ports

LOAD_SOURCE: Final = POMS / "http" / "http_load.rs"
BARE_APP: Final = "benchmarks.bare_app:app"
START_TIMEOUT_S: Final = 60.0
LOAD_TIMEOUT_S: Final = 600.0


class LakeMQ:
    """One `lakemq serve` on a free port.

    Args:
        directory: for the store and the log.
        flush: `sync` or `async`.
        arguments: more of the command's.
    """

    def __init__(self, directory: Path, flush: str, *arguments: str) -> None:
        self.directory = directory
        self.store = directory / "store"
        directory.mkdir(parents=True, exist_ok=True)
        given = ["--store", str(self.store), "--flush", flush, "--port", "0", *arguments]
        self._process = BrokerProcess(given, directory / "serve.log", prefix=ends_with_parent())
        self._process.wait_ready(START_TIMEOUT_S)
        self.port = self._process.port
        self.endpoint = self._process.endpoint

    @property
    def pid(self) -> int:
        """Returns the broker's process id."""
        return self._process.pid

    def put_topic(self, topic: str, queues: int = 4) -> None:
        """Creates a topic."""
        body = json.dumps({"read_queue_nums": queues, "write_queue_nums": queues})
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        connection.request("PUT", f"/api/v1/topics/{topic}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status >= 300:
            raise RuntimeError(f"PUT topic: {response.status} {response.read()[:300]!r}")
        connection.close()

    def stop(self) -> None:
        """Stops the broker."""
        self._process.stop()

    def kill(self) -> None:
        """Sends SIGKILL to the broker."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class BareServer:
    """A raw ASGI route that reads a body and answers fixed bytes, on uvicorn as the broker runs it."""

    def __init__(self, directory: Path) -> None:
        self.port = free_ports()
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "uvicorn", BARE_APP, "--port", str(self.port), "--loop", "uvloop"]
        command += ["--http", "httptools", "--no-access-log", "--log-level", "warning", "--lifespan", "off"]
        self._process = ServerProcess(command, directory / "bare.log")
        self._process.wait_until(lambda: answers_on(self.port), START_TIMEOUT_S)

    def stop(self) -> None:
        """Stops the server."""
        self._process.stop()


class HyperServer:
    """The same on hyper, on one thread: what the machine gives without Python (benchmarks/peers/hyper)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "hyper.log"
        self._process = ServerProcess([str(_hyper())], log)
        self._process.wait_until(lambda: log.read_text().endswith("\n"), START_TIMEOUT_S)
        self.port = int(log.read_text().split()[-1])

    def stop(self) -> None:
        """Stops the server."""
        self._process.stop()


def post_load(
    port: int,
    directory: Path,
    path: str,
    content_type: str,
    body: bytes,
    *,
    connections: int,
    count: int,
    warmup: int,
    rate: float | None = None,
) -> dict[str, Any]:
    """Posts one body again and again and returns the result: rate in requests/s, p50_us, p99_us, p999_us.

    Args:
        rate: requests a second, each due at its time whatever became of those before it; None for as fast
            as it goes.

    Raises:
        RuntimeError: An answer was not 200, or a connection broke.
    """
    sizes = {"connections": connections, "count": count, "warmup": warmup}
    load = start_load(port, directory, path, content_type, body, **sizes, rate=rate)
    try:
        output, errors = load.communicate(timeout=LOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        load.kill()
        load.communicate()
        raise
    if load.returncode != 0:
        raise RuntimeError(f"load on {path}: {errors[-1000:]}")
    result: dict[str, Any] = json.loads(output)
    return result


def get_load(
    port: int,
    directory: Path,
    path: str,
    *,
    step: int,
    offsets: int,
    connections: int,
    count: int,
    warmup: int,
) -> dict[str, Any]:
    """Gets a path again and again, and returns what `post_load` does.

    Args:
        port: of the server.
        directory: for the head of the request.
        path: `{offset}` in it is 0, `step`, 2 * `step` ... in `offsets` requests that take turns.
        step, offsets: see `path`.
        connections: each has one request under way.
        count, warmup: requests that count, and those before them.

    Raises:
        RuntimeError: An answer was not 200, or a connection broke.
    """
    (directory / "head").write_text(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n", newline="")
    numbers = {"step": step, "offsets": offsets, "connections": connections, "count": count, "warmup": warmup}
    command = [str(_generator()), "--address", f"{LOOPBACK}:{port}", "--head", str(directory / "head")]
    for name, number in numbers.items():
        command += [f"--{name}", str(number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"load on {path}: {done.stderr[-1000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def start_load(
    port: int,
    directory: Path,
    path: str,
    content_type: str,
    body: bytes,
    *,
    connections: int,
    count: int,
    warmup: int,
    rate: float | None = None,
) -> subprocess.Popen[str]:
    """Starts the generator; the caller waits for it or kills it. Arguments as `post_load`."""
    head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nContent-Type: {content_type}\r\n"
    (directory / "head").write_text(head, newline="")
    (directory / "body").write_bytes(body)
    command = [str(_generator()), "--address", f"{LOOPBACK}:{port}"]
    command += ["--head", str(directory / "head"), "--body", str(directory / "body")]
    command += ["--connections", str(connections), "--count", str(count), "--warmup", str(warmup)]
    if rate is not None:
        command += ["--rate", str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _hyper() -> Path:
    target = peers_home() / "hyper-target"
    command = ["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", str(target)]
    subprocess.run([*command, "--manifest-path", str(POMS / "hyper" / "Cargo.toml")], check=True, timeout=900)
    return target / "release" / "bare-hyper"


def _generator() -> Path:
    """Returns the compiled load generator, compiled again when its source is newer."""
    binary = peers_home() / "http_load"
    if binary.exists() and binary.stat().st_mtime >= LOAD_SOURCE.stat().st_mtime:
        return binary
    if shutil.which("rustc") is None:
        raise PeerMissing("rustc is not installed; LakeMQ itself is built with it: see https://rustup.rs")
    binary.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["rustc", "-O", "-o", str(binary), str(LOAD_SOURCE)], check=True)
    return binary
