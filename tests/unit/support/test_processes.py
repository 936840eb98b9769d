"""A server process that a test waits for: it answers, or the failure carries the end of its log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import NotReady, ServerProcess

WAITS = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess([sys.executable, "-c", WAITS], tmp_path / "log")
    yield process
    process.kill()


def test_a_server_is_waited_for_until_it_answers(server: ServerProcess) -> None:
    server.wait_until(lambda: "up" in server.log_end(), 30)
    assert server.alive


def test_a_server_that_does_not_answer_in_time_is_named_by_its_log(server: ServerProcess) -> None:
    server.wait_until(lambda: "up" in server.log_end(), 30)
    with pytest.raises(AssertionError, match="no answer in 0 s\nup"):
        server.wait_until(lambda: False, 0)


def test_a_server_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    process = ServerProcess([sys.executable, "-c", "raise SystemExit('port taken')"], tmp_path / "log")
    with pytest.raises(NotReady, match="ended with 1\nport taken"):
        process.wait_until(lambda: False, 30)
    process.wait(30)
