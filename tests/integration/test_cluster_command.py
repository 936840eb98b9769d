"""``lakemq cluster up``: a whole cluster on one machine that keeps its messages and ends without a trace."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from lakemq.cli.app import main
from lakemq.client import Client
from tests.support.waiting import wait_until


class Up:
    """One run of the command."""

    def __init__(self, directory: Path) -> None:
        arguments = ["up", "--masters", "2", "--slaves", "1", "--sync", "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakemq.cli", "cluster", *arguments, "--directory", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        self.shown = ""

    def __enter__(self) -> Up:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.shown += line
            if line.startswith("ready"):
                return self
        raise AssertionError(self.process.communicate())

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=60)

    @property
    def endpoint(self) -> str:
        found = re.search(r"--endpoint (\S+);", self.shown)
        assert found is not None
        return found[1]

    def stop(self) -> int:
        """Ends it as a supervisor does."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def pids_in(directory: Path) -> list[str]:
    """The processes that have the directory among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if str(directory) in arguments and "serve" in arguments:
            found.append(process.name)
    return found


def test_a_cluster_is_started_keeps_its_messages_and_ends_as_a_whole(tmp_path: Path) -> None:
    with Up(tmp_path / "c") as up:
        assert re.findall(r"(broker-\S+) +(\S+master|slave)", up.shown) == [
            *(("broker-a", "sync-master"), ("broker-a-slave-1", "slave")),
            *(("broker-b", "sync-master"), ("broker-b-slave-1", "slave")),
        ]
        with Client(up.endpoint) as client:
            wait_until(lambda: set(client.brokers()) == {"broker-a", "broker-b"})
            for name in ("broker-a", "broker-b"):
                wait_until(lambda name=name: bool(client.replication(broker_name=name)["slaves"]))  # type: ignore[misc]
            client.put_topic("orders")
            sent = [client.send("orders", f"{number}") for number in range(4)]
        assert {result.status for result in sent} == {"SEND_OK"}, "a slave has each"
        assert {result.broker_name for result in sent} == {"broker-a", "broker-b"}
        assert len(pids_in(tmp_path / "c")) == 4
        assert up.stop() == 0
    assert pids_in(tmp_path / "c") == []
    with Up(tmp_path / "c") as again, Client(again.endpoint) as client:
        wait_until(lambda: set(client.brokers()) == {"broker-a", "broker-b"})
        wait_until(lambda: _stored(client) == 4)


def test_a_cluster_whose_command_was_killed_leaves_nothing_running(tmp_path: Path) -> None:
    with Up(tmp_path / "c") as up:
        children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
        assert len(children) == 5, "a name server, two masters and their slaves"
        up.process.kill()
        up.process.wait()
        try:
            wait_until(lambda: not any(Path("/proc", pid).exists() for pid in children))
        finally:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def _stored(client: Client) -> int:
    brokers = client.brokers("orders").values()
    return sum(queue.max_offset for broker in brokers for queue in broker.queues("orders"))


def test_what_makes_no_cluster_is_refused(tmp_path: Path) -> None:
    assert main(["cluster", "up", "--masters", "27", "--directory", str(tmp_path)]) == 2
    assert main(["cluster", "up", "--slaves", "0", "--sync", "--directory", str(tmp_path)]) == 2
