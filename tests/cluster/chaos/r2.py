"""R2: kill -9 of a synchronous master and its slave, in turn, under load; promote, rejoin; nothing is lost.

A round: start both, wait until the slave follows, check everything acknowledged so far on both, load the
master, kill one or both, and go on: with the old master, or with its slave promoted in its place. What
anybody has read from either is there for good, and so is every committed offset.

    python -m tests.cluster.chaos.r2 --rounds 200 --seed 7

Prints one line per round and exits with 1 at the first broken rule, leaving the directory to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from lakemq.broker_process import NotReady
from lakemq.client import Client, LakeMQError
from tests.cluster.chaos.broker import ChaosBroker
from tests.cluster.chaos.r1 import ChaosFailure
from tests.cluster.chaos.writers import TOPICS, Writer
from tests.support.checker import Found, check, identity, read_http
from tests.support.journal import read_journals
from tests.support.plain_log import queue_problems, read_log
from tests.support.processes import LOOPBACK, free_ports
from tests.support.waiting import wait_until

WRITERS: Final = 3
STORE_ROUNDS: Final = 10
GROUP: Final = "chaos"
KILLS: Final = ("master", "master", "slave", "both")
FOLLOWS_IN_S: Final = 60.0


class Node:
    """One of the two brokers.

    Args:
        directory: holds its store.
        broker_id: as a slave.
        flush: `sync`: what is acknowledged is on two disks.
    """

    def __init__(self, directory: Path, broker_id: int, flush: str) -> None:
        self.broker = ChaosBroker(directory, flush, free_ports())
        self._broker_id = broker_id

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.broker.port}"

    def start_as_master(self) -> None:
        self.broker.arguments = ("--role", "sync-master", "--ha-port", "0")
        self.broker.start()

    def start_as_slave(self, master: Node) -> None:
        self.broker.arguments = (
            *("--role", "slave", "--broker-id", str(self._broker_id), "--ha-port", "0"),
            *("--master", master.endpoint),
        )
        self.broker.start()

    def client(self) -> Client:
        return Client(self.endpoint, retries=0)

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            return client.replication()


class Reader:
    """Reads a broker while it lives, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: set[Found] = set()
        self._next: dict[tuple[str, int], int] = {}

    def run(self, node: Node, stop: threading.Event) -> None:
        """Pulls until told to stop, or the broker is gone."""
        with node.client() as client:
            while not stop.is_set():
                for topic in TOPICS:
                    for queue in range(4):
                        try:
                            self._pull(client, topic, queue)
                        except LakeMQError:
                            stop.wait(0.01)

    def _pull(self, client: Client, topic: str, queue: int) -> None:
        pulled = client.pull(topic, queue, self._next.get((topic, queue), 0), max=200)
        for message in pulled.messages:
            found = Found(topic, queue, message.queue_offset, identity(message.body or b""))
            self.seen.add(found)
        self._next[topic, queue] = pulled.next_offset


class ChaosPair:
    """A master and its slave over several rounds."""

    def __init__(self, directory: Path, flush: str, seed: int) -> None:
        self.directory = directory
        self._journals = directory / "journals"
        self._random = random.Random(seed)
        self._master = Node(directory / "a", 1, flush)
        self._slave = Node(directory / "b", 2, flush)
        self._writers = [
            Writer(f"w{at}", self._journals, seed * WRITERS + at, only_ok=True) for at in range(WRITERS)
        ]
        self._seen: set[Found] = set()
        self._committed = 0
        self._start_both()

    def _start_both(self) -> None:
        try:
            if not self._master.broker.alive:
                self._master.start_as_master()
            if not self._slave.broker.alive:
                self._slave.start_as_slave(self._master)
            wait_until(
                lambda: self._master.status()["in_reach"],
                FOLLOWS_IN_S,
                lambda: f"the slave does not follow: {self._slave.status()}",
            )
            wait_until(
                lambda: (status := self._master.status())["confirmed"] == status["appended"],
                FOLLOWS_IN_S,
                lambda: f"the end of the log does not count: {self._master.status()}",
            )
        except (NotReady, AssertionError) as error:
            raise ChaosFailure(f"{error} ({self.directory})") from error

    def round(self, number: int) -> str:
        """Loads, kills, goes on and checks; returns what happened.

        Raises:
            ChaosFailure: A rule was broken.
        """
        begun = time.monotonic()
        killed = self._random.choice(KILLS)
        promoted = self._random.random() < 0.6
        self._load_and_kill(killed)
        if not self._master.broker.alive and self._slave.broker.alive and promoted:
            with self._slave.client() as client:
                client.promote("sync-master")
            self._master, self._slave = self._slave, self._master
            killed += ", its slave promoted"
        self._start_both()
        acknowledged = self._check(number)
        return (
            f"R2 round {number}: killed {killed}, {acknowledged} acknowledged, 0 lost, "
            f"{time.monotonic() - begun:.2f} s"
        )

    def finish(self) -> int:
        """Checks a last time and stops both; returns the acknowledged messages."""
        acknowledged = self._check(-1)
        self._slave.broker.stop()
        self._master.broker.stop()
        for writer in self._writers:
            writer.close()
        return acknowledged

    def kill(self) -> None:
        """Leaves nothing running."""
        self._master.broker.kill()
        self._slave.broker.kill()

    def _load_and_kill(self, killed: str) -> None:
        stop = threading.Event()
        readers = [Reader(), Reader()]
        threads = [
            threading.Thread(target=writer.run, args=(self._master.broker.port, stop))
            for writer in self._writers
        ]
        threads += [
            threading.Thread(target=reader.run, args=(node, stop))
            for reader, node in zip(readers, (self._master, self._slave), strict=True)
        ]
        threads.append(threading.Thread(target=self._commit, args=(stop,)))
        for thread in threads:
            thread.start()
        stop.wait(self._random.uniform(0.2, 1.5))
        victims = {"master": [self._master], "slave": [self._slave], "both": [self._master, self._slave]}
        for victim in victims[killed]:
            victim.broker.kill()
            stop.wait(self._random.uniform(0, 0.2))
        stop.set()
        for thread in threads:
            thread.join()
        for reader in readers:
            self._seen |= reader.seen

    def _commit(self, stop: threading.Event) -> None:
        """Moves a group on, and remembers what was answered."""
        with self._master.client() as client:
            while not stop.is_set():
                offset = self._committed + 1
                try:
                    client.put_group(GROUP)
                    client.commit_offsets(GROUP, {(TOPICS[0], 0): offset})
                    if client.replication()["in_reach"]:
                        self._committed = offset
                except LakeMQError:
                    stop.wait(0.02)

    def _check(self, number: int) -> int:
        sent = read_journals(self._journals)
        problems: list[str] = []
        try:
            with self._master.client() as client:
                known = {topic.topic for topic in client.topics()} & set(TOPICS)
                offsets = client.group_offsets(GROUP) if self._committed else {}
            found = read_http(self._master.broker.port, sorted(known))
        except (AssertionError, LakeMQError, OSError) as error:
            raise ChaosFailure(f"round {number}: {error!r} ({self.directory})") from error
        report = check("HTTP pull", sent, found)
        if not report.clean:
            problems.append(str(report))
        if gone := self._seen - set(found):
            problems.append(f"{len(gone)} messages were read and are gone: {sorted(gone)[:3]}")
        if self._committed and offsets.get((TOPICS[0], 0), 0) < self._committed:
            problems.append(f"the group went back from {self._committed} to {offsets}")
        problems += self._differences()
        if problems:
            raise ChaosFailure(f"round {number}: {'; '.join(problems)} ({self.directory})")
        return report.acknowledged

    def _differences(self) -> list[str]:
        """Compares the two logs, and each one's queues with its log, below what both confirmed."""
        confirmed = min(node.status()["confirmed"] for node in (self._master, self._slave))
        logs = [_bytes(node.broker.store, confirmed) for node in (self._master, self._slave)]
        if logs[0] != logs[1]:
            return [f"the logs differ below {confirmed}"]
        problems: list[str] = []

        def agree() -> bool:
            # What was confirmed a moment ago is on its way into the queues.
            store = self._master.broker.store
            problems[:] = queue_problems(store, read_log(store))[:5]
            return not problems

        with contextlib.suppress(AssertionError):
            wait_until(agree)
        return problems


def _bytes(store: Path, end: int) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files if path.name.isdigit())[:end]


def run(rounds: int, seed: int, directory: Path, report: bool = True) -> int:
    """Runs R2 and returns how many acknowledged messages were checked.

    Raises:
        ChaosFailure: A rule was broken.
    """
    checked = 0
    for first in range(0, rounds, STORE_ROUNDS):
        flush = "sync" if (first // STORE_ROUNDS) % 2 == 0 else "async"
        pair = ChaosPair(directory / f"pair-{first}-{flush}", flush, seed + first)
        try:
            for number in range(first, min(first + STORE_ROUNDS, rounds)):
                done = pair.round(number)
                if report:
                    print(done, flush=True)
            checked += pair.finish()
        finally:
            pair.kill()
        shutil.rmtree(pair.directory)
    return checked


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos.r2", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices; timing still differs")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    directory = Path(tempfile.mkdtemp(prefix="lakemq-r2-"))
    print(f"R2 rounds={options.rounds} seed={seed} directory={directory}", flush=True)
    begun = time.monotonic()
    try:
        checked = run(options.rounds, seed, directory)
    except ChaosFailure as failure:
        print(f"R2 failed: {failure}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - begun
    print(f"R2 rounds={options.rounds} acknowledged={checked} lost=0 phantom=0 seconds={seconds:.0f} held")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
