"""The quick start's directory is its own, and emptied only when nobody uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from lakemq.quickstart.home import empty_home
from lakemq.terminal.failure import CommandFailed
from store_native import Store


def test_directory_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(CommandFailed, match="no quick start made it"):
        empty_home(tmp_path)
    assert (tmp_path / "store").exists()


def test_directory_of_an_earlier_run_is_emptied_but_for_its_input(tmp_path: Path) -> None:
    home = empty_home(tmp_path / "q")
    for name in ("store", "ledger", "checkpoint", "input"):
        (home / name).mkdir()
    empty_home(home)
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"input"}


def test_store_that_a_broker_serves_is_not_deleted(tmp_path: Path) -> None:
    home = empty_home(tmp_path / "q")
    store = Store(str(home / "store"))
    (home / "ledger").mkdir()
    try:
        with pytest.raises(CommandFailed, match=r"a broker serves .*/q/store: .* stop that first"):
            empty_home(home)
        assert (home / "store" / "abort").exists()
        assert (home / "ledger").exists()
    finally:
        store.close()
    empty_home(home)
    assert not (home / "store").exists()


def test_store_that_rocketmq_serves_is_not_deleted(tmp_path: Path) -> None:
    home = empty_home(tmp_path / "q")
    (home / "store").mkdir()
    (home / "store" / "lock").write_bytes(b"lock")
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(); input()"
    )
    command = [sys.executable, "-c", code, str(home / "store" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(CommandFailed, match="a broker serves"):
            empty_home(home)
        broker.communicate(b"\n", timeout=60)
    empty_home(home)
    assert not (home / "store").exists()


def test_ledger_that_a_group_writes_is_not_deleted(tmp_path: Path) -> None:
    home = empty_home(tmp_path / "q")
    (lock,) = ledger_at(str(home / "ledger")).writer_locks([DELIVERIES])
    lock.acquire()
    try:
        with pytest.raises(CommandFailed, match="this process itself writes deliveries of this ledger"):
            empty_home(home)
        assert (home / "ledger").exists()
    finally:
        lock.release()
    empty_home(home)
    assert not (home / "ledger").exists()
