"""``lakemq cluster up``: a whole cluster on one machine that keeps its messages and ends without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakemq.cli.app import main
from lakemq.client import Client
from lakemq.local_cluster import LOG
from tests.support.http import Http
from tests.support.waiting import wait_until


class Up:
    """One run of the command."""

    def __init__(self, directory: Path, masters: int = 2) -> None:
        arguments = ["--masters", str(masters), "--slaves", "1", "--sync", "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakemq.cli", "cluster", "up", *arguments, "--directory", str(directory)],
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
            wait_until(lambda: _holders(up.endpoint, "orders") == {"broker-a", "broker-b"})
            sent = [client.send("orders", f"{number}") for number in range(4)]
        assert {result.status for result in sent} == {"SEND_OK"}, "a slave has each"
        assert {result.broker_name for result in sent} == {"broker-a", "broker-b"}
        assert len(pids_in(tmp_path / "c")) == 4
        assert up.stop() == 0
    assert pids_in(tmp_path / "c") == []
    with Up(tmp_path / "c") as again, Client(again.endpoint) as client:
        wait_until(lambda: set(client.brokers()) == {"broker-a", "broker-b"})
        wait_until(lambda: _stored(client) == 4)
    with Up(tmp_path / "c", masters=1) as fewer:
        fewer.process.terminate()
        said = fewer.process.communicate(timeout=60)[1]
    assert "has messages of broker-b, broker-b-slave-1 too, which --masters and --slaves leave out" in said


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


def _holders(name_server: str, topic: str) -> set[str]:
    answer = Http(name_server).get(f"/routes/{topic}")
    return {queues["broker_name"] for queues in answer.json["queues"]} if answer.status == 200 else set()


def _stored(client: Client) -> int:
    brokers = client.brokers("orders").values()
    return sum(queue.max_offset for broker in brokers for queue in broker.queues("orders"))


def test_a_start_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["cluster", "up", "--port", str(port), "--directory", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "nameserver did not start (exit code 1): ARGUMENT_ILLEGAL: cannot listen on 127.0.0.1 " in said
    assert f"port {port}: Address already in use" in said
    assert f"its log is {tmp_path / 'nameserver' / LOG}" in said


def test_who_is_the_master_is_shown_before_and_behind_a_promotion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Up(tmp_path / "c", masters=1) as up:
        assert up.process.stdout is not None
        assert up.process.stderr is not None
        master, slave = re.findall(r"^broker-a\S* .*(http://\S+)$", up.shown, re.MULTILINE)
        status = ["ha", "status", "--endpoint", up.endpoint]

        def states() -> list[tuple[str, Any, Any]]:
            capsys.readouterr()
            main([*status, "--format", "json"])
            said = json.loads(capsys.readouterr().out)
            return [(each["endpoint"], each.get("role"), each.get("following")) for each in said]

        wait_until(lambda: states() == [(master, "sync-master", False), (slave, "slave", True)])
        assert main(status) == 0
        shown = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in shown] == ["broker_name", "broker-a", "broker-a"]
        assert "1 slave follows" in shown[1]
        assert shown[2].split()[-2:] == [slave, "follows"]
        assert main(["ha", "promote", "--yes", "--endpoint", up.endpoint]) == 2
        assert f"one of {slave} (broker-a id 1)" in capsys.readouterr().err

        os.kill(pid_of(tmp_path / "c" / "broker-a" / "store"), signal.SIGKILL)
        ended = up.process.stderr.readline()
        assert ended.startswith("lakemq: broker-a has ended; its log is ")
        assert (
            f"; lakemq ha promote --endpoint {slave} --role sync-master makes broker-a-slave-1 the master"
            in ended
        )
        assert main(status) == 1
        assert f"does not answer: no connection to {master}" in capsys.readouterr().out
        assert main(["ha", "promote", "--yes", "--endpoint", slave]) == 0
        said = up.process.stdout.readline()
        assert said == f"broker-a: broker-a-slave-1 is the master now, {slave}, epoch 65\n"
        wait_until(lambda: states() == [(slave, "async-master", False)])


def test_a_cluster_that_is_started_again_keeps_to_its_promotion(tmp_path: Path) -> None:
    with Up(tmp_path / "c", masters=1) as up, Client(up.endpoint) as client:
        wait_until(lambda: bool(client.brokers()) and bool(client.replication()["slaves"]))
        client.put_topic("orders")
        assert {client.send("orders", f"{number}").status for number in range(3)} == {"SEND_OK"}
        os.kill(pid_of(tmp_path / "c" / "broker-a" / "store"), signal.SIGKILL)
        slave = roles(up)["broker-a-slave-1"][1]
        assert main(["ha", "promote", "--yes", "--endpoint", slave]) == 0
        with Client(slave) as promoted:
            assert {promoted.send("orders", f"{number}").status for number in range(3, 8)} == {"SEND_OK"}
        up.stop()
    for _ in range(2):
        with Up(tmp_path / "c", masters=1) as again:
            said = roles(again)
            assert {name: role for name, (role, _) in said.items()} == {
                "broker-a-slave-1": "sync-master",
                "broker-a": "slave",
            }
            with Client(said["broker-a-slave-1"][1]) as master, Client(said["broker-a"][1]) as old:
                assert master.replication()["epoch"] == 65
                wait_until(lambda: bool(old.replication()["following"]))
                assert sum(queue.max_offset for queue in master.queues("orders")) >= 8
                assert master.send("orders", "another").status == "SEND_OK", "the old one has it"
                wait_until(lambda: old.replication()["appended"] == master.replication()["appended"])
            assert again.stop() == 0


def roles(up: Up) -> dict[str, tuple[str, str]]:
    """Role and endpoint of each member, as they are shown."""
    lines = re.findall(r"^(broker-\S+) +(\S+) +(http://\S+)$", up.shown, re.MULTILINE)
    return {name: (role, endpoint) for name, role, endpoint in lines}


def pid_of(store: Path) -> int:
    """The broker of a store."""
    (found,) = [
        int(process.parent.name)
        for process in Path("/proc").glob("[0-9]*/cmdline")
        if f"--store\0{store}\0" in process.read_text(errors="replace")
    ]
    return found


def test_what_makes_no_cluster_is_refused(tmp_path: Path) -> None:
    assert main(["cluster", "up", "--masters", "27", "--directory", str(tmp_path)]) == 2
    assert main(["cluster", "up", "--slaves", "0", "--sync", "--directory", str(tmp_path)]) == 2
