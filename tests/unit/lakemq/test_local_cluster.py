"""A start that is given up ends, with another process in the place of the first, and starts nobody more.

Nor does one begin whose masters are not all there.
"""

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
from lakemq.client import DataCorrupt, InvalidRequest, LakeMQError, Unavailable
from lakemq.local_cluster import LOG, LocalCluster
from tests.support.stores import open_store
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


def promoted(store: Path, epoch: int) -> None:
    """Leaves a slave's store that was made the master of an epoch."""
    made = open_store(store, role="slave")
    made.replicated_log().become_master(epoch, False)
    made.close()


def refused(directory: Path, slaves: int) -> LakeMQError:
    """What a start says that begins nothing."""
    before = sorted(directory.iterdir())
    with pytest.raises(LakeMQError) as error, LocalCluster(directory, masters=1, slaves=slaves):
        raise AssertionError("it was started")
    assert sorted(directory.iterdir()) == before, "nobody was started"
    return error.value


def test_a_promoted_slave_is_not_left_out(tmp_path: Path) -> None:
    open_store(tmp_path / "broker-a" / "store").close()
    promoted(tmp_path / "broker-a-slave-1" / "store", 65)
    promoted(tmp_path / "broker-a-slave-2" / "store", 66)
    error = refused(tmp_path, slaves=1)
    assert isinstance(error, InvalidRequest)
    said = "broker-a-slave-2 is the master of broker-a since its promotion: --slaves 1 omits it"
    assert error.detail == said


def test_nobody_takes_the_place_of_a_promoted_master_that_is_gone(tmp_path: Path) -> None:
    open_store(tmp_path / "broker-a" / "store").close()
    follower = open_store(tmp_path / "broker-a-slave-2" / "store", role="slave")
    follower.replicated_log().become_slave(65)  # of slave 1, whose store is not there
    follower.close()
    error = refused(tmp_path, slaves=2)
    assert isinstance(error, InvalidRequest)
    said = (
        f"{tmp_path} has broker-a, broker-a-slave-2, and not the master that broker-a has had since epoch 65"
    )
    assert error.detail.startswith(f"{said}: promote the one that is to take its place by hand")


def test_a_slave_does_not_follow_an_empty_store_in_its_masters_place(tmp_path: Path) -> None:
    open_store(tmp_path / "broker-a-slave-1" / "store", role="slave").close()
    error = refused(tmp_path, slaves=1)
    assert f"{tmp_path} has broker-a-slave-1, and not the master" in error.detail


def test_an_epoch_file_that_is_not_readable_is_said(tmp_path: Path) -> None:
    open_store(tmp_path / "broker-a" / "store").close()
    path = tmp_path / "broker-a" / "store" / "lakemq" / "epochs.json"
    path.write_text("[]", encoding="utf-8")
    error = refused(tmp_path, slaves=1)
    assert isinstance(error, DataCorrupt)
    assert error.detail.startswith(f"{path} is not readable: ")
