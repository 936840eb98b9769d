"""R1: kill -9 of the broker under load, at random moments and at named points; nothing acknowledged is lost.

A round: start the broker on the store the last kill left, check everything acknowledged so far through two
paths (HTTP pull, plain file parser), load it with writers, kill it. A fault can hit during recovery as well.
Every STORE_ROUNDS rounds a new store begins, so that a round stays short.

    python -m tests.cluster.chaos.r1 --rounds 200 --seed 7

Prints one line per round and exits with 1 at the first broken rule, leaving the directory to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemq.broker_process import NotReady
from tests.cluster.chaos.broker import ChaosBroker
from tests.cluster.chaos.rounds import ChaosFailure, add_rounds, run_from_command_line
from tests.cluster.chaos.writers import TOPICS, Writer
from tests.support.checker import Report, check, read_http, read_plain
from tests.support.journal import read_journals
from tests.support.plain_log import queue_problems, read_log

WRITERS: Final = 4
STORE_ROUNDS: Final = 10
FAULT_TIMEOUT_S: Final = 3.0
# Points of the store's fault option, each with the largest hit worth waiting for under this load.
POINTS: Final[dict[str, int]] = {
    "append.mid": 150,
    "append.after": 150,
    "next.made": 2,
    "roll": 2,
    "roll.named": 2,
    "flush.before": 60,
    "flush.after": 60,
    "checkpoint.mid": 4,
    "dispatch.mid": 150,
    "snapshot.mid": 4,
}


@dataclass(frozen=True, slots=True)
class Round:
    """How one round ended."""

    number: int
    kill: str
    reached: bool
    requests: int
    acknowledged: int
    seconds: float

    def __str__(self) -> str:
        how = self.kill if self.reached else f"{self.kill} (not reached, killed)"
        return (
            f"R1 round {self.number}: {how}, {self.requests} requests, "
            f"{self.acknowledged} acknowledged, 0 lost, {self.seconds:.2f} s"
        )


class ChaosStore:
    """One store, its broker and its writers, over several rounds."""

    def __init__(self, directory: Path, flush: str, seed: int) -> None:
        self.directory = directory
        self.broker = ChaosBroker(directory, flush)
        self._journals = directory / "journals"
        self._random = random.Random(seed)
        self._writers = [Writer(f"w{at}", self._journals, seed * WRITERS + at) for at in range(WRITERS)]

    def round(self, number: int) -> Round:
        """Starts, checks, loads and kills the broker.

        Raises:
            ChaosFailure: A rule was broken.
        """
        begun = time.monotonic()
        point = self._random.choice(["random", "random", *POINTS])
        faults = "" if point == "random" else f"{point}:{self._random.randint(1, POINTS[point])}"
        if self._random.random() < 0.15:
            self._kill_while_starting()
        try:
            ready = self.broker.start(faults)
        except NotReady as error:
            raise ChaosFailure(
                f"round {number}: the broker does not start: {error} ({self.directory})"
            ) from error
        if not ready:
            self.broker.start()
            faults += " in recovery"
        acknowledged = self._check(number)
        before = sum(writer.requests for writer in self._writers)
        reached = self._load_and_kill(faults)
        requests = sum(writer.requests for writer in self._writers) - before
        return Round(number, faults or "random", reached, requests, acknowledged, time.monotonic() - begun)

    def finish(self, number: int) -> int:
        """Starts the broker a last time, checks, stops it gracefully; returns the acknowledged messages."""
        try:
            self.broker.start()
        except NotReady as error:
            raise ChaosFailure(
                f"round {number}: the broker does not start: {error} ({self.directory})"
            ) from error
        acknowledged = self._check(number)
        self.broker.stop()
        for writer in self._writers:
            writer.close()
        return acknowledged

    def _kill_while_starting(self) -> None:
        process = self.broker.launch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._random.uniform(0.2, 1.2))
        process.kill()

    def _load_and_kill(self, faults: str) -> bool:
        stop = threading.Event()
        arguments = (self.broker.port, stop)
        threads = [threading.Thread(target=writer.run, args=arguments) for writer in self._writers]
        for thread in threads:
            thread.start()
        if faults and "recovery" not in faults:
            deadline = time.monotonic() + FAULT_TIMEOUT_S
            while self.broker.alive and time.monotonic() < deadline:
                stop.wait(0.005)
            reached = not self.broker.alive
        else:
            stop.wait(self._random.uniform(0.02, 0.5))
            reached = True
        self.broker.kill()
        stop.set()
        for thread in threads:
            thread.join()
        failures = [writer.failure for writer in self._writers if writer.failure]
        if failures:
            raise ChaosFailure(f"the broker refused requests: {failures[0]} ({self.directory})")
        return reached

    def _check(self, number: int) -> int:
        sent = read_journals(self._journals)
        log = read_log(self.broker.store)
        topics = sorted({request.topic for request in sent if request.topic in TOPICS})
        stored = {record.topic for record in log.records}
        reports: list[Report] = []
        try:
            reports.append(check("plain files", sent, read_plain(self.broker.store, topics, log)))
            known = [topic for topic in topics if topic in stored]
            reports.append(check("HTTP pull", sent, read_http(self.broker.port, known)))
        except (AssertionError, OSError) as error:
            raise ChaosFailure(f"round {number}: {error!r} ({self.directory})") from error
        problems = [str(report) for report in reports if not report.clean]
        problems += queue_problems(self.broker.store, log)[:5]
        if problems:
            raise ChaosFailure(f"round {number}: {'; '.join(problems)} ({self.directory})")
        return reports[0].acknowledged


def run(rounds: int, seed: int, directory: Path, report: bool = True) -> int:
    """Runs R1 and returns how many acknowledged messages were checked.

    Raises:
        ChaosFailure: A rule was broken.
    """
    checked = 0
    for first in range(0, rounds, STORE_ROUNDS):
        flush = "sync" if (first // STORE_ROUNDS) % 2 == 0 else "async"
        store = ChaosStore(directory / f"store-{first}-{flush}", flush, seed + first)
        last = min(first + STORE_ROUNDS, rounds)
        try:
            for number in range(first, last):
                done = store.round(number)
                if report:
                    print(done, flush=True)
            checked += store.finish(last)
        finally:
            store.broker.kill()
        shutil.rmtree(store.directory)
    return checked


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos.r1", description=__doc__)
    add_rounds(parser)
    parser.add_argument(
        "--directory", type=Path, default=None, help="where stores are kept (default: a new one)"
    )
    options = parser.parse_args(arguments)
    return run_from_command_line("R1", options, run, directory=options.directory)


if __name__ == "__main__":
    sys.exit(main())
