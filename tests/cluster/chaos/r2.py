"""R2: kill -9 of a synchronous master and its slaves, in turn, under load; promote, rejoin; nothing is lost.

A round: load the master, kill one or more brokers, go on with the old master or with a slave promoted in its
place, at times killed again before anybody follows it, wait until all follow, check everything that was
acknowledged so far. A query of Spark's source reads meanwhile. What anybody has read from any of them is
there for good, and so is every committed offset; a key is one request, a delayed message comes once and not
early, a lease has one holder.

    python -m tests.cluster.chaos.r2 --rounds 200 --seed 7
    python -m tests.cluster.chaos.r2 --rounds 200 --brokers 3 --min-in-sync 2 --load leases

Prints one line per round and exits with 1 at the first broken rule, leaving the directory to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemq.broker_process import NotReady
from lakemq.client import InvalidRequest, LakeMQError
from tests.cluster.chaos.delayed import DelayedMessages
from tests.cluster.chaos.groups import Groups
from tests.cluster.chaos.load import Load
from tests.cluster.chaos.node import Node
from tests.cluster.chaos.queries import Query
from tests.cluster.chaos.rounds import ChaosFailure, add_rounds, run_from_command_line
from tests.cluster.chaos.sends import Sends
from tests.support.plain_log import queue_problems, read_log
from tests.support.waiting import wait_until

STORE_ROUNDS: Final = 10
LOADS: Final = ("delays", "offsets", "leases", "query")
"""Beside the sends, which are always there."""
KILLS: Final = ("master", "master", "slave", "all")
KILLS_OF_THREE: Final = (*KILLS, "master and slave")
PROMOTED: Final = 0.6
KILLED_AGAIN: Final = 0.25
FOLLOWS_IN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Which brokers there are, and what they are loaded with.

    Attributes:
        min_in_sync: how many slaves must have a message.
        loads: of LOADS.
    """

    brokers: int = 2
    min_in_sync: int = 1
    loads: tuple[str, ...] = LOADS


class ChaosBrokers:
    """A master and its slaves over several rounds."""

    def __init__(self, directory: Path, flush: str, seed: int, shape: Shape) -> None:
        self.directory = directory
        self._random = random.Random(seed)
        self._min_in_sync = shape.min_in_sync
        names = "abcdefgh"[: shape.brokers]
        self._nodes = [
            Node(directory / name, number, flush, shape.min_in_sync)
            for number, name in enumerate(names, start=1)
        ]
        self._master = self._nodes[0]
        self._sends = Sends(directory / "journals", seed)
        self._loads: list[Load] = [self._sends]
        if "delays" in shape.loads:
            self._loads.append(DelayedMessages(seed))
        if {"offsets", "leases"} & set(shape.loads):
            self._loads.append(Groups(seed, shape.loads))
        if "query" in shape.loads:
            self._loads.append(Query())
        self._epoch = 0

    @property
    def _slaves(self) -> list[Node]:
        return [node for node in self._nodes if node is not self._master]

    def start(self) -> None:
        """Starts all for the first time."""
        self._start_all()
        self._wait_for_slaves()
        for load in self._loads:
            load.prepare(self._master)
        self._wait_for_slaves()

    def round(self, number: int) -> str:
        """Loads, kills, goes on and checks; returns what happened.

        Raises:
            ChaosFailure: A rule was broken.
        """
        begun = time.monotonic()
        kills = KILLS if len(self._nodes) == 2 else KILLS_OF_THREE
        happened = self._kill_and_go_on(self._random.choice(kills))
        if self._random.random() < KILLED_AGAIN:
            self._start_all()
            happened += "; before all followed, " + self._kill_and_go_on("master")
        self._start_all()
        self._wait_for_slaves()
        self._check(number)
        return (
            f"R2 round {number}: killed {happened}, {self._sends.acknowledged} acknowledged, 0 lost, "
            f"{time.monotonic() - begun:.2f} s"
        )

    def finish(self) -> int:
        """Checks a last time and stops all; returns the acknowledged messages."""
        problems = [problem for load in self._loads for problem in load.problems_at_end(self._master)]
        if problems:
            raise ChaosFailure(f"at the end: {'; '.join(problems)} ({self.directory})")
        self._check(-1)
        for node in (*self._slaves, self._master):
            node.broker.stop()
        return self._sends.acknowledged

    def kill(self) -> None:
        """Leaves nothing running."""
        for node in self._nodes:
            node.broker.kill()

    def _start_all(self) -> None:
        """Has the master run and every other one as its slave; does not wait until they follow."""
        launched: list[Node] = []
        for node in (self._master, *self._slaves):
            master = None if node is self._master else self._master
            if node.broker.alive and node.follows is not master:
                self._random.choice((node.broker.kill, node.broker.stop))()
            if not node.broker.alive:
                node.launch(master)
                launched.append(node)
        try:
            for node in launched:
                node.broker.wait_ready()
            epoch = self._master.status()["epoch"]
        except (NotReady, LakeMQError) as error:
            raise ChaosFailure(f"{error} ({self.directory})") from error
        if epoch < self._epoch:
            raise ChaosFailure(f"the epoch went back from {self._epoch} to {epoch} ({self.directory})")
        self._epoch = epoch

    def _wait_for_slaves(self) -> None:
        def follow() -> bool:
            status = self._master.status()
            return status["in_reach"] and len(status["slaves"]) == len(self._slaves)

        def all_counts() -> bool:
            status = self._master.status()
            return bool(status["confirmed"] == status["appended"])

        try:
            wait_until(
                follow,
                FOLLOWS_IN_S,
                lambda: f"not all follow: {[node.status() for node in self._nodes]}",
            )
            wait_until(
                all_counts,
                FOLLOWS_IN_S,
                lambda: f"the end of the log does not count: {self._master.status()}",
            )
        except AssertionError as error:
            raise ChaosFailure(f"{error} ({self.directory})") from error

    def _kill_and_go_on(self, killed: str) -> str:
        """Kills under load; a slave that may becomes the master, at times; says what happened."""
        self._load_and_kill(self._victims(killed))
        if self._master.broker.alive or self._random.random() >= PROMOTED:
            return killed
        successor = self._successor()
        if successor is None:
            return killed
        try:
            epoch = successor.promote()
        except InvalidRequest as refused:
            return f"{killed}, {successor.name} not promoted ({refused.detail})"
        if epoch <= self._epoch:
            raise ChaosFailure(f"epoch {epoch} came after {self._epoch} ({self.directory})")
        self._epoch, self._master = epoch, successor
        return f"{killed}, {successor.name} promoted"

    def _victims(self, killed: str) -> list[Node]:
        nodes = list(self._nodes)
        self._random.shuffle(nodes)
        slave = next(node for node in nodes if node is not self._master)
        return {
            "master": [self._master],
            "slave": [slave],
            "master and slave": [self._master, slave],
            "all": nodes,
        }[killed]

    def _successor(self) -> Node | None:
        """Chooses as an operator has to: among so many that one has all that was acknowledged."""
        alive = [node for node in self._slaves if node.broker.alive]
        status = {node.name: node.status() for node in alive}
        # Who has not heard of the master's epoch would begin one that is not above it.
        known = [node for node in alive if status[node.name]["epoch"] >= self._epoch]
        if len(known) <= len(self._slaves) - self._min_in_sync:
            return None
        if self._min_in_sync == len(self._slaves):
            return self._random.choice(known)
        return max(
            known,
            key=lambda node: (status[node.name]["epochs"][-1]["epoch"], status[node.name]["appended"]),
        )

    def _load_and_kill(self, victims: Sequence[Node]) -> None:
        stop = threading.Event()
        jobs = [job for load in self._loads for job in load.jobs(self._master, self._slaves)]
        with ThreadPoolExecutor(len(jobs)) as threads:
            running = [threads.submit(job, stop) for job in jobs]
            try:
                stop.wait(self._random.uniform(0.2, 1.5))
                for victim in victims:
                    victim.broker.kill()
                    stop.wait(self._random.uniform(0, 0.2))
            finally:
                stop.set()
            for each in running:
                each.result()

    def _check(self, number: int) -> None:
        try:
            problems = [problem for load in self._loads for problem in load.problems(self._master)]
            problems += self._differences()
        except (AssertionError, LakeMQError, OSError) as error:
            raise ChaosFailure(f"round {number}: {error!r} ({self.directory})") from error
        if problems:
            raise ChaosFailure(f"round {number}: {'; '.join(problems)} ({self.directory})")

    def _differences(self) -> list[str]:
        """Compares all logs, and the master's queues with its log, below what all of them confirmed."""
        confirmed = min(node.status()["confirmed"] for node in self._nodes)
        logs = {node.name: _bytes(node.broker.store, confirmed) for node in self._nodes}
        if len(set(logs.values())) != 1:
            return [f"the logs of {', '.join(logs)} differ below {confirmed}"]
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


def run(rounds: int, seed: int, directory: Path, shape: Shape | None = None, *, report: bool = True) -> int:
    """Runs R2 and returns how many acknowledged messages were checked.

    Raises:
        ChaosFailure: A rule was broken.
    """
    checked = 0
    for first in range(0, rounds, STORE_ROUNDS):
        flush = ("sync", "async")[(seed + first // STORE_ROUNDS) % 2]
        brokers = ChaosBrokers(directory / f"brokers-{first}-{flush}", flush, seed + first, shape or Shape())
        try:
            brokers.start()
            for number in range(first, min(first + STORE_ROUNDS, rounds)):
                done = brokers.round(number)
                if report:
                    print(done, flush=True)
            checked += brokers.finish()
        finally:
            brokers.kill()
        shutil.rmtree(brokers.directory)
    return checked


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos.r2", description=__doc__)
    add_rounds(parser)
    parser.add_argument("--brokers", type=int, choices=range(2, 9), default=2)
    parser.add_argument("--min-in-sync", type=int, default=1, help="slaves that must have a message")
    parser.add_argument(
        "--load", action="append", choices=LOADS, help="beside the sends; may be repeated (default: all)"
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.min_in_sync < options.brokers:
        parser.error("--min-in-sync: at least 1 slave, and as many as there are at most")
    shape = Shape(options.brokers, options.min_in_sync, tuple(options.load or LOADS))
    return run_from_command_line(
        "R2",
        options,
        lambda rounds, seed, directory: run(rounds, seed, directory, shape),
        shape=str(shape),
    )


if __name__ == "__main__":
    sys.exit(main())
