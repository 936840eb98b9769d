"""A start that is given up ends, with another process in the place of the first, and starts nobody more."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lakemq import local_cluster
from lakemq.broker_process import BrokerProcess
from lakemq.cli.app import main
from lakemq.client import Unavailable
from lakemq.local_cluster import LOG, LocalCluster
from tests.support.waiting import wait_until

NEVER_READY = "import signal; signal.pause()"


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_sigterm_ends_a_start_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = partial(BrokerProcess, prefix=(sys.executable, "-c", NEVER_READY))
    monkeypatch.setattr(local_cluster, "BrokerProcess", started)

    def end_it() -> None:
        wait_until((tmp_path / "nameserver" / LOG).exists)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_it)
    ending.start()
    assert main(["cluster", "up", "--port", "0", "--directory", str(tmp_path)]) == 0
    ending.join()
    assert [place.name for place in tmp_path.iterdir()] == ["nameserver"]
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_a_start_that_was_given_up_starts_nobody(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", masters=2, slaves=1)
    cluster.give_up()
    with pytest.raises(Unavailable, match="nameserver was not started: the start was given up"), cluster:
        raise AssertionError("it was started")
    assert cluster.members == []
    assert not (tmp_path / "c").exists()
