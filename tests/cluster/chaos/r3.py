"""R3: the network of a synchronous master and its slave fails under load; no send is called safe that is not.

A round: load both, hold back the log, the reports or both, let them through in bits, or cut the connection,
for as long as chance says, then let go and wait until the slave follows. While it lasts, what was answered
SEND_OK by then lies in the files of the slave's log; in the end all that was acknowledged is there, in its
order and once, and nothing that anybody read is gone.

    python -m tests.cluster.chaos.r3 --rounds 100 --seed 7

Prints one line per round and exits with 1 at the first broken rule, leaving the directory to look at.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.cluster.chaos.node import Node
from tests.cluster.chaos.rounds import ChaosFailure, add_rounds, run_from_command_line
from tests.cluster.chaos.sends import Sends
from tests.support.checker import identity
from tests.support.journal import Sent, read_journals
from tests.support.plain_log import read_log
from tests.support.tcp_proxy import Direction, TcpProxy
from tests.support.waiting import wait_until

STORE_ROUNDS: Final = 10
FOLLOWS_IN_S: Final = 60.0
FAULTS: Final[dict[str, tuple[Direction, ...]]] = {
    "the log is held back": ("to client",),
    "the reports are held back": ("to server",),
    "both are held back": ("to client", "to server"),
    "both go in bits": (),
    "the connection is cut": (),
}
_TIMEOUT_S: Final = 0.5


class PartedBrokers:
    """A synchronous master and its slave, with a proxy between them."""

    def __init__(self, directory: Path, flush: str, seed: int) -> None:
        self.directory = directory
        self._random = random.Random(seed)
        self._master = Node(directory / "master", 0, flush, 1)
        self._master.broker.limits = {"sync_flush_timeout_s": _TIMEOUT_S}
        self._slave = Node(directory / "slave", 1, flush, 1)
        self._sends = Sends(directory / "journals", seed)
        self._on_exit = ExitStack()

    def start(self) -> None:
        """Starts both."""
        self._master.launch(None)
        self._master.broker.wait_ready()
        self._proxy = self._on_exit.enter_context(TcpProxy(self._master.status()["ha_port"]))
        link = f"ha://127.0.0.1:{self._proxy.port}"
        self._slave.broker.arguments = ("--role", "slave", "--broker-id", "1", "--master", link)
        self._slave.broker.launch()
        self._slave.broker.wait_ready()
        self._wait_for_slave()

    def round(self, number: int) -> str:
        """Loads, parts, heals and checks; returns what happened.

        Raises:
            ChaosFailure: A rule was broken.
        """
        begun = time.monotonic()
        fault = self._random.choice(list(FAULTS))
        self._load_and_part(fault)
        self._wait_for_slave()
        if problems := self._sends.problems(self._master):
            raise ChaosFailure(f"round {number}, {fault}: {'; '.join(problems)} ({self.directory})")
        sent = read_journals(self.directory / "journals")
        unsafe = sum(request.outcome == "unknown" for request in sent)
        return (
            f"R3 round {number}: {fault}, {self._sends.acknowledged} acknowledged, {unsafe} requests were "
            f"not, 0 lost, {time.monotonic() - begun:.2f} s"
        )

    def finish(self) -> int:
        """Stops both; returns the acknowledged messages."""
        self._sends.problems_at_end(self._master)
        for node in (self._slave, self._master):
            node.broker.stop()
        return self._sends.acknowledged

    def kill(self) -> None:
        """Leaves nothing running."""
        for node in (self._slave, self._master):
            node.broker.kill()
        self._on_exit.close()

    def _load_and_part(self, fault: str) -> None:
        stop = threading.Event()
        jobs = self._sends.jobs(self._master, [self._slave])
        with ThreadPoolExecutor(len(jobs)) as threads:
            running = [threads.submit(job, stop) for job in jobs]
            try:
                stop.wait(self._random.uniform(0.1, 0.5))
                self._part(fault, self._random.uniform(0.1, 4 * _TIMEOUT_S), stop)
                self._proxy.hold()
                stop.wait(self._random.uniform(0, 0.3))
                self._look()
            finally:
                self._proxy.hold()
                stop.set()
            for each in running:
                each.result()

    def _part(self, fault: str, seconds: float, stop: threading.Event) -> None:
        """Has the network fail so long, and looks twice or more at what was called safe meanwhile."""
        until = time.monotonic() + seconds
        self._proxy.hold(*FAULTS[fault])
        if fault == "the connection is cut":
            self._proxy.cut()
        self._look()
        while (left := until - time.monotonic()) > 0:
            if fault == "both go in bits":
                self._proxy.hold("to client", "to server")
                stop.wait(self._random.uniform(0, 0.1))
                self._proxy.hold()
            stop.wait(min(left, self._random.uniform(0, 0.2)))
        self._look()

    def _look(self) -> None:
        """Compares what was answered SEND_OK by now with the slave's files."""
        safe = {id_ for request in self._said() if request.outcome == "ok" for id_ in request.ids}
        there = {identity(record.body) for record in read_log(self._slave.broker.store).records}
        if missing := safe - there:
            raise ChaosFailure(
                f"{len(missing)} messages were answered SEND_OK and are not on the slave: "
                f"{sorted(missing)[:3]} ({self.directory})"
            )

    def _said(self) -> list[Sent]:
        """The journals, without a line that is being written."""
        held = self.directory / "held"
        held.mkdir(exist_ok=True)
        for path in (self.directory / "journals").glob("*.jsonl"):
            written = path.read_bytes()
            (held / path.name).write_bytes(written[: written.rfind(b"\n") + 1])
        return read_journals(held)

    def _wait_for_slave(self) -> None:
        def follows() -> bool:
            status = self._master.status()
            return bool(status["in_reach"] and status["confirmed"] == status["appended"])

        try:
            wait_until(follows, FOLLOWS_IN_S, lambda: f"the slave does not follow: {self._master.status()}")
        except AssertionError as error:
            raise ChaosFailure(f"{error} ({self.directory})") from error


def run(rounds: int, seed: int, directory: Path, *, report: bool = True) -> int:
    """Runs R3 and returns how many acknowledged messages were checked.

    Raises:
        ChaosFailure: A rule was broken.
    """
    checked = 0
    for first in range(0, rounds, STORE_ROUNDS):
        flush = ("sync", "async")[(seed + first // STORE_ROUNDS) % 2]
        brokers = PartedBrokers(directory / f"brokers-{first}-{flush}", flush, seed + first)
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
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos.r3", description=__doc__)
    add_rounds(parser)
    return run_from_command_line("R3", parser.parse_args(arguments), run)


if __name__ == "__main__":
    sys.exit(main())
