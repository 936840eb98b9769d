"""Damage on disk: torn tails, flipped bits, deleted derived files, a full disk.

Contract (guarantees): what was acknowledged and flushed is served or reported damaged, never served wrong; a
torn tail is cut off; consume queues, index and checkpoint are rebuilt from the log; a full disk is an error.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store_native import Reader, Store
from tests.support.plain_log import Record, queue_problems, read_log
from tests.support.stores import copy_store, open_store
from tests.support.unflushed_writer import FLUSHED, SIZES, TOPIC, UNFLUSHED, body

REPOSITORY = Path(__file__).parents[2]
WINDOW = 4096
DERIVED = ("consumequeue", "index", "checkpoint", "abort")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory where that is possible: hundreds of stores are opened here, and none of it is about fsync."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("damage")
        return
    with tempfile.TemporaryDirectory(prefix="lakemq-damage-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def crashed(folder: Path) -> Path:
    """A store killed with its last three records unflushed."""
    path = folder / "crashed"
    command = [sys.executable, "-m", "tests.support.unflushed_writer", str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return path


@pytest.fixture(scope="module")
def closed(folder: Path) -> Path:
    """A cleanly closed store of some hundred messages over several log, queue and index files."""
    path = folder / "closed"
    with closing(open_store(path, flush="async", **{**SIZES, "commitlog_file_size": 64 << 10})) as store:
        for number in range(FLUSHED * 15):
            store.append_message(TOPIC, body(number), keys=[f"k{number}", "all"], tags=f"t{number % 3}")
        end = store.append_message("other", b"other").end_offset
        assert store.wait_dispatched(end, 5000)
    return path


def _records(store: Path) -> list[Record]:
    log = read_log(store)
    assert not log.damage
    return [record for record in log.records if record.topic == TOPIC]


def _bodies(store: Store | Reader) -> list[bytes]:
    piece = store.read_json(TOPIC, 0, 0, max_messages=10_000, max_bytes=64 << 20)
    return [message["body"].encode() for message in json.loads(piece.messages)]


def test_tail_torn_at_every_byte_of_the_last_three_records_is_cut_off(crashed: Path, folder: Path) -> None:
    tail = _records(crashed)[-UNFLUSHED:]
    assert [record.body for record in tail] == [body(FLUSHED + at) for at in range(UNFLUSHED)]
    first, end = tail[0].physical_offset, tail[-1].physical_offset + tail[-1].size
    for cut in range(first, end):
        store_path = copy_store(crashed, folder / "copy")
        with (store_path / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(cut)
            log.write(bytes(end - cut))
        whole = FLUSHED + sum(1 for record in tail if record.physical_offset + record.size <= cut)
        with closing(open_store(store_path, **SIZES)) as store:
            assert _bodies(store) == [body(number) for number in range(whole)], cut
            appended = store.append_message(TOPIC, b"next")
            assert json.loads(appended.answer("SEND_OK"))["queue_offset"] == whole, cut
            assert store.wait_dispatched(appended.end_offset, 5000)
            assert _bodies(store)[-1] == b"next"
        log_after = read_log(store_path)
        assert not log_after.damage, (cut, log_after.damage)
        assert queue_problems(store_path, log_after) == [], cut


def test_every_flipped_bit_of_a_window_is_reported_and_never_served(closed: Path, folder: Path) -> None:
    store_path = copy_store(closed, folder / "copy")
    records = _records(store_path)
    window = [record for record in records if record.physical_offset < WINDOW]
    right = [record.body for record in window]
    with (
        (store_path / "commitlog" / f"{0:020d}").open("r+b") as file,
        closing(Reader(str(store_path))) as reader,
    ):
        log = mmap.mmap(file.fileno(), 0)
        for at, bit in itertools.product(range(window[0].physical_offset, WINDOW), range(8)):
            log[at] ^= 1 << bit
            hit = next(
                (
                    index
                    for index, record in enumerate(window)
                    if 0 <= at - record.physical_offset < record.size
                ),
                None,
            )
            piece = reader.read_json(TOPIC, 0, 0, max_messages=len(window), max_bytes=1 << 20)
            got = {row["queue_offset"]: row["body"].encode() for row in json.loads(piece.messages)}
            log[at] ^= 1 << bit
            wanted = {index: text for index, text in enumerate(right) if index != hit}
            assert got.items() >= wanted.items(), (at, bit)
            assert hit not in got, (at, bit, got)
            assert hit is None or [hit, hit + 1] in [list(span) for span in piece.damaged], (at, bit)
        log.close()


def test_flushed_damage_in_the_middle_is_quarantined_and_the_rest_is_served(
    closed: Path, folder: Path
) -> None:
    records = _records(closed)
    for hit in range(5, len(records), 97):
        for delta in (0, 6, records[hit].size // 2, records[hit].size - 3):
            store_path = copy_store(closed, folder / "copy")
            (store_path / "abort").touch()
            at = records[hit].physical_offset + delta
            file_size = 64 << 10
            with (store_path / "commitlog" / f"{at - at % file_size:020d}").open("r+b") as log:
                log.seek(at % file_size)
                (byte,) = log.read(1)
                log.seek(at % file_size)
                log.write(bytes([byte ^ 0x40]))
            with closing(open_store(store_path, **{**SIZES, "commitlog_file_size": file_size})) as store:
                piece = store.read_json(TOPIC, 0, 0, max_messages=10_000, max_bytes=64 << 20)
                got = {row["queue_offset"]: row["body"].encode() for row in json.loads(piece.messages)}
                assert got == {number: body(number) for number in range(len(records)) if number != hit}, (
                    hit,
                    delta,
                )
                # Recovery counts what it scans; damage before its start is counted when it is read.
                stats = store.stats()
                assert stats["quarantined_bytes"] or stats["damaged_records_total"], (hit, delta)


@pytest.mark.parametrize("missing", [c for n in range(5) for c in itertools.combinations(DERIVED, n)])
def test_deleted_derived_files_are_rebuilt_byte_identical(
    closed: Path, folder: Path, missing: tuple[str, ...]
) -> None:
    store_path = copy_store(closed, folder / "copy")
    (store_path / "abort").touch()
    for name in missing:
        path = store_path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    with closing(open_store(store_path, **{**SIZES, "commitlog_file_size": 64 << 10})) as store:
        assert len(_bodies(store)) == FLUSHED * 15
        assert len(json.loads(store.query_json(TOPIC, "k7"))) == 1
    assert _queue_bytes(store_path) == _queue_bytes(closed)
    assert _index_bytes(store_path) == _index_bytes(closed)
    assert not (store_path / "abort").exists()
    log = read_log(store_path)
    assert queue_problems(store_path, log) == []


def test_full_disk_is_an_error_and_service_returns_with_space(tmp_path: Path) -> None:
    writer = f"{sys.executable} -m tests.support.full_disk_writer {tmp_path}"
    probe = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {probe.stderr.strip()}")
    command = f"mount -t tmpfs -o size=16m tmpfs {tmp_path} && exec {writer}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (
        f"exit {done.returncode} (SIGBUS is {-signal.SIGBUS})\n{done.stdout}{done.stderr}"
    )


def _queue_bytes(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for topic in (TOPIC, "other")
        for path in sorted((root / topic).rglob("*"))
        if path.is_file()
    }


def _index_bytes(store: Path) -> list[bytes]:
    """Contents in order of the names; a name is the time the file was made, so it differs."""
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]
