"""P6 and P19: what replication costs senders, how fast a new slave gets the log, how soon a slave takes over.

Owns the pairs of brokers and the plain copy that a catch-up is held against. A pair is measured when its
slave has all that its master has.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.reading import fill
from benchmarks.scale import Scale
from benchmarks.sending import PROMISES, ROCKETMQ_THREADS, TOPIC, post_rate, rocketmq_load
from benchmarks.server import LakeMQ
from lakemq.client import Client, LakeMQError
from tests.support.peer_brokers import RocketMQ, ToolFailed
from tests.support.processes import LOOPBACK
from tests.support.waiting import wait_until

CONNECTIONS: Final = 64
SLAVES: Final = (1, 2)
FOLLOWS_S: Final = 600.0
BODY_BYTES: Final = 1024
RECEIVER: Final = """
import mmap, os, socket, sys
path, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "w+b") as file, socket.create_connection(("127.0.0.1", port)) as connection:
    os.posix_fallocate(file.fileno(), 0, size)
    with mmap.mmap(file.fileno(), size) as mapped:
        view, at = memoryview(mapped), 0
        while at < size:
            at += connection.recv_into(view[at : at + (1 << 20)])
        view.release()
        connection.sendall(b"!")
"""
"""The other end of a plain copy: what comes goes into a mapped file, as a slave's does."""


class Replicated:
    """A master and its slaves, on one machine.

    Args:
        stack: stops them.
        directory: for their stores.
        flush: `sync` or `async`, of all of them.
        role: of the master.
        slaves: how many follow it.
        more: arguments of the master.
    """

    def __init__(
        self, stack: ExitStack, directory: Path, flush: str, role: str, slaves: int = 1, *more: str
    ) -> None:
        self._stack = stack
        self._directory = directory
        self._flush = flush
        master = ("--role", role, "--ha-port", "0", *more)
        self.master = stack.enter_context(LakeMQ(directory / "master", flush, *master))
        self.slaves = [self.add_slave(number) for number in range(1, slaves + 1)]
        self.master.put_topic(TOPIC)
        self.wait()

    def add_slave(self, broker_id: int) -> LakeMQ:
        """Starts a slave of the master."""
        role = ("--role", "slave", "--broker-id", str(broker_id), "--master", self.master.endpoint)
        return self._stack.enter_context(
            LakeMQ(self._directory / f"slave-{broker_id}", self._flush, *role, "--ha-port", "0")
        )

    def wait(self, slaves: int | None = None) -> None:
        """Waits until each slave has said that it has the log."""
        count = len(self.slaves) if slaves is None else slaves

        def follow() -> bool:
            status = replication(self.master)
            return [slave["acked"] for slave in status["slaves"]] == [status["appended"]] * count

        wait_until(follow, FOLLOWS_S, lambda: replication(self.master))


def replication(broker: LakeMQ) -> dict[str, Any]:
    """What a broker says of its replication."""
    with Client(broker.endpoint) as client:
        return client.replication()


def synchronous(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P6: a master that waits for its slave, against one that does not, and against RocketMQ's."""
    for flush, promise in PROMISES.items():
        with ExitStack() as stack:
            ours = Replicated(stack, directory / f"p6-{flush}", flush, "sync-master")
            own = Replicated(stack, directory / f"p6-{flush}-own", flush, "async-master")
            against = "own ASYNC_MASTER with a slave"
            measurement = Measurement(
                "P6", f"own-{flush}", 0.9, "messages/s", f"{promise}, at two brokers", against
            )
            mine = post_rate(ours.master, CONNECTIONS, scale.singles)
            yield Comparison(measurement, mine, post_rate(own.master, CONNECTIONS, scale.singles))
            rocketmq = rocketmq_pair(stack, directory / f"p6-{flush}-rocketmq", flush)
            against = "RocketMQ SYNC_MASTER, inSyncReplicas=2, 64 threads"
            measurement = Measurement(
                "P6", f"rocketmq-{flush}", 1.3, "messages/s", f"{promise}, at two brokers", against
            )

            def theirs(peer: RocketMQ = rocketmq) -> float:
                return float(rocketmq_load(peer, ROCKETMQ_THREADS, 1, scale.singles)["rate"])

            yield Comparison(measurement, mine, theirs)
        shutil.rmtree(directory)


def rocketmq_pair(stack: ExitStack, directory: Path, flush: str) -> RocketMQ:
    """Starts RocketMQ's synchronous master and its slave; returns the master when a send went to both."""
    settings = {
        "flushDiskType": "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH",
        "defaultTopicQueueNums": 4,
        "inSyncReplicas": 2,
    }
    sizes: dict[str, Any] = {"commitlog_file_size": 1 << 30, "heap": "1g"}
    master = RocketMQ(directory / "master", settings={**settings, "brokerRole": "SYNC_MASTER"}, **sizes)
    stack.enter_context(master)
    of_slave = {**settings, "brokerRole": "SLAVE", "brokerId": 1}
    stack.enter_context(RocketMQ(directory / "slave", settings=of_slave, name_server_of=master, **sizes))

    def is_followed() -> bool:
        try:
            return bool(rocketmq_load(master, 1, 1, 10))
        except ToolFailed:  # its send was not acknowledged by the slave yet
            return False

    wait_until(is_followed, 120.0, lambda: "RocketMQ's slave does not follow")
    return master


def costs(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P19: the log to a new slave, processor time a message, and the time of a promotion."""
    with ExitStack() as stack:
        # As fast as it goes: nobody sends beside it.
        limit = ("--replication.catch_up_mib_per_s", "100000")
        pair = Replicated(stack, directory / "p19", "async", "async-master", 0, *limit)
        fill(pair.master, None, BODY_BYTES, scale.caught_up // BODY_BYTES)
        size = int(replication(pair.master)["appended"])
        against = f"a plain copy of {size / (1 << 30):.1f} GiB by sendfile into a mapped file"
        measurement = Measurement(
            "P19", "catch-up", 0.7, "MiB/s", "neither side flushes before it counts", against
        )
        log = pair.master.store / "commitlog"
        yield Comparison(measurement, _catch_up(pair, size), _plain_copy(log, size, directory), warm_ups=0)
    shutil.rmtree(directory)
    with ExitStack() as stack:
        alone = Replicated(stack, directory / "p19-0", "async", "async-master", slaves=0)
        for count in SLAVES:
            pair = Replicated(stack, directory / f"p19-{count}", "async", "async-master", slaves=count)
            measurement = Measurement(
                *("P19", f"processor-time-{count}-slaves", None, "us a message of the master"),
                *("answered before the flush", "without a slave"),
                at_most=True,
            )
            mine, theirs = (_processor_time(broker, scale.singles) for broker in (pair.master, alone.master))
            yield Comparison(measurement, mine, theirs)
    shutil.rmtree(directory)
    measurement = Measurement(
        *("P19", "promotion", 2.0, "s", "from the promotion to the first acknowledged send", "-"),
        at_most=True,
        relation="value",
    )
    yield Comparison(measurement, _promotion(directory), None)


def _catch_up(pair: Replicated, size: int) -> Measure:
    """A slave that begins with nothing, from when it serves."""

    def measure() -> float:
        slave = pair.add_slave(1)
        began = time.monotonic()
        before = sum(slave["acked"] for slave in replication(pair.master)["slaves"])
        pair.wait(1)
        seconds = time.monotonic() - began
        slave.stop()
        shutil.rmtree(slave.directory)
        return float(size - before) / (1 << 20) / seconds

    return measure


def _plain_copy(log: Path, size: int, directory: Path) -> Measure:
    def measure() -> float:
        copy = directory / "copy"
        with socket.create_server((LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
            command = [sys.executable, "-c", RECEIVER, str(copy), str(size), str(port)]
            with subprocess.Popen(command) as receiver:
                connection, _ = server.accept()
                with connection:
                    began = time.monotonic()
                    left = size
                    for path in sorted(log.iterdir()):
                        with path.open("rb") as file:
                            count = min(left, path.stat().st_size)
                            connection.sendfile(file, 0, count)
                            left -= count
                    connection.recv(1)
                    seconds = time.monotonic() - began
            if receiver.returncode != 0:
                raise RuntimeError("the plain copy failed")
        copy.unlink()
        return size / (1 << 20) / seconds

    return measure


def _processor_time(broker: LakeMQ, count: int) -> Measure:
    send = post_rate(broker, CONNECTIONS, count)

    def measure() -> float:
        before = _processor_s(broker.pid)
        send()
        sent = count + count // 4  # with those before the ones that count
        return (_processor_s(broker.pid) - before) / sent * 1e6

    return measure


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _promotion(directory: Path) -> Measure:
    numbers = iter(range(1_000))

    def measure() -> float:
        folder = directory / f"promotion-{next(numbers)}"
        with ExitStack() as stack:
            pair = Replicated(stack, folder, "sync", "sync-master")
            post_rate(pair.master, CONNECTIONS, 2_000)()
            pair.wait()
            pair.master.kill()
            with Client(pair.slaves[0].endpoint, retries=0) as client:
                began = time.monotonic()
                client.promote()
                wait_until(lambda: _is_stored(client))
                seconds = time.monotonic() - began
        shutil.rmtree(folder)
        return seconds

    return measure


def _is_stored(client: Client) -> bool:
    try:
        return bool(client.send(TOPIC, b"first").message_id)
    except LakeMQError:
        return False
