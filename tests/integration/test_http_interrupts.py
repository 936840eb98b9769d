"""Ctrl-C ends a broker with a closed store and without a stack: while it starts, and twice while it stops."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import SMALL_FILES
from tests.support.wire import RawConnection, request


@contextmanager
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    config = tmp_path / "broker.toml"
    config.write_text(SMALL_FILES)
    command = [sys.executable, "-m", "lakemq.cli", "serve", "--config", str(config), "--port", "0"]
    broker = subprocess.Popen(
        [*command, "--store", str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield broker
    finally:
        broker.kill()
        broker.communicate()


def read_until(broker: subprocess.Popen[str], words: str) -> None:
    assert broker.stderr is not None
    while line := broker.stderr.readline():
        if words in line:
            return
    raise AssertionError(f"the broker ended without saying {words!r}")


@pytest.mark.parametrize("words", ["limit of open files", "store open"])
def test_ctrl_c_while_a_broker_starts(tmp_path: Path, words: str) -> None:
    with serving(tmp_path) as broker:
        read_until(broker, words)
        broker.send_signal(signal.SIGINT)
        told, log = broker.communicate(timeout=60)
        assert broker.returncode == (0 if "ready" in told else 130)
        assert "Traceback" not in log
        assert "Error" not in log
    assert not (tmp_path / "store" / "abort").exists(), "the store was closed"


def test_a_second_ctrl_c_waits_for_nobody_and_closes_the_store(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        assert broker.stdout is not None
        port = int(broker.stdout.readline().split()[4].rpartition(":")[2])
        head = request(b"POST /api/v1/topics/held/messages", b"Content-Length: 9", b"Expect: 100-continue")
        with RawConnection(port) as held:
            assert held.send(head).answer().status == 100, "a request is being read"
            broker.send_signal(signal.SIGINT)
            read_until(broker, "stopping")
            broker.send_signal(signal.SIGINT)
            _, log = broker.communicate(timeout=60)
        assert broker.returncode == 0
        assert "Traceback" not in log
        assert "store closed" in log
    assert not (tmp_path / "store" / "abort").exists()
