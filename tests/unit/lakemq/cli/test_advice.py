"""What is said behind an error: who has a lock; nothing where the system does not tell."""

from __future__ import annotations

import argparse
import fcntl
import os
from pathlib import Path

import pytest

from lakemq.cli.advice import advice, holder_of
from store_native.errors import InvalidRequest, Unavailable

NOBODY = argparse.Namespace(endpoint="127.0.0.1:1")


def test_a_locked_file_names_the_process_that_has_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as file:
        assert holder_of(lock) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder_of(lock) == os.getpid()


def test_a_lock_without_an_owner_and_a_system_that_hides_them_name_nobody(tmp_path: Path) -> None:
    lock, table = tmp_path / "lock", tmp_path / "locks"
    lock.touch()
    found = lock.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    table.write_text(f"1: OFDLCK ADVISORY  WRITE -1 {place} 0 0\n1: -> FLOCK\n")
    assert holder_of(lock, table) is None
    table.write_text(f"1: OFDLCK ADVISORY WRITE -1 {place} 0 0\n2: FLOCK ADVISORY WRITE 12 {place} 0 EOF\n")
    assert holder_of(lock, table) == 12
    assert holder_of(lock, tmp_path / "no-table") is None


def test_a_locked_store_says_what_to_do(tmp_path: Path) -> None:
    locked = Unavailable("STORE_LOCKED", f"{tmp_path} belongs to another process")
    assert advice(locked, NOBODY) == "end that first, or give another directory"
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        pid = os.getpid()
        assert advice(locked, NOBODY).startswith(f"process {pid} has it: end that first (kill {pid})")


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_the_error_of_an_unknown_name_says_how_to_make_it_even_without_a_broker(kind: str) -> None:
    unknown = InvalidRequest(f"{kind.upper()}_NOT_EXIST", f"{kind}[t] not exist")
    assert advice(unknown, NOBODY) == f"lakemq {kind} create t makes it"


def test_other_errors_stand_as_they_are() -> None:
    assert advice(InvalidRequest("TOPIC_ILLEGAL", "topic[t] is no name"), NOBODY) == ""
