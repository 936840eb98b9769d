"""Files that brokers and jobs write beside the store, on a disk that loses power.

Contract: a file that was written is there when its writer has returned; one that was being written is as it
was, or as it is to be. The same holds for the directory that was made for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from ingest_api.broker.deleted_lists import DeletedLists
from ingest_api.broker.groups.offsets_aside import KeptOffset, OffsetsAside
from ingest_api.broker.thread_pools import ReadPool
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.export import export
from jobs.runtime.checkpoint import StreamCheckpoint
from store_native.durable_files import FileDisk, make_directory, replace_file
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf
from structured_streaming.options import parse_write
from structured_streaming.sink.fixed_brokers import FILE as FIXED_BROKERS
from structured_streaming.sink.fixed_brokers import with_brokers
from tests.support.ledger_rows import append, path_ledger
from tests.support.unsynced_disk import PowerCut, UnsyncedDisk
from tests.unit.jobs.dlq.test_replay import letter

NOTHING = 0
"""What a reader finds before anything was written."""


@dataclass(frozen=True)
class Writer:
    """Writes a number below a directory, and reads the one that is there.

    Attributes:
        goes_on: It writes 2 only where 1 is.
    """

    write: Callable[[Path, FileDisk, int], object]
    read: Callable[[Path], int]
    goes_on: bool = False


def _note_list(root: Path, disk: FileDisk, number: int) -> None:
    DeletedLists(root, disk).note("orders", OrderConf(number, "a:4"))


def _noted_list(root: Path) -> int:
    newest = 0
    for version in (2, 1):
        try:
            DeletedLists(root).check("orders", OrderConf(version, "another:4"))
        except InvalidRequest:
            newest = max(newest, version)
    return newest


def _keep_offset(root: Path, disk: FileDisk, number: int) -> None:
    pool = ReadPool(1)
    try:
        asyncio.run(OffsetsAside(root, pool, disk).keep("g", [KeptOffset("t", "1", 0, number, None)]))
    finally:
        pool.close()


def _kept_offset(root: Path) -> int:
    pool = ReadPool(1)
    try:
        return max((kept.offset for kept in OffsetsAside(root, pool).of("g")), default=0)
    finally:
        pool.close()


def _checkpoint(root: Path) -> Path:
    return root / "checkpoints" / "group"


def _decide_start(root: Path, disk: FileDisk, number: int) -> None:
    StreamCheckpoint(_checkpoint(root), disk).start_over(lambda: {"at": number})


def _decided_start(root: Path) -> int:
    return int(StreamCheckpoint(_checkpoint(root)).start(lambda: {"at": NOTHING})["at"])


def _fix_brokers(root: Path, disk: FileDisk, number: int) -> None:
    """The first list has two brokers, the second one of them, for whom nobody has to be asked."""
    place = root / "query"
    if number == 1:
        replace_file(place / FIXED_BROKERS, json.dumps({"v": 1, "brokers": ["b-1", "b-2"]}).encode(), disk)
        return
    options = parse_write({"endpoint": "http://127.0.0.1:1", "brokers": "b-2", "retryTimeoutMs": "1"})
    with_brokers(options, {"checkpointLocation": str(place)}, streaming=True, disk=disk)


def _fixed_brokers(root: Path) -> int:
    file = root / "query" / FIXED_BROKERS
    if not file.exists():
        return NOTHING
    return 1 if len(json.loads(file.read_text())["brokers"]) == 2 else 2


def _replace(root: Path, disk: FileDisk, number: int) -> None:
    replace_file(root / "made" / "for" / "it.json", str(number).encode(), disk)


def _replaced(root: Path) -> int:
    file = root / "made" / "for" / "it.json"
    return int(file.read_text()) if file.exists() else NOTHING


WRITERS = {
    "a list of a deleted topic": Writer(_note_list, _noted_list),
    "offsets for a master": Writer(_keep_offset, _kept_offset),
    "where a stream began": Writer(_decide_start, _decided_start),
    "a sink's brokers": Writer(_fix_brokers, _fixed_brokers, goes_on=True),
    "any file": Writer(_replace, _replaced),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_what_was_written_is_there_after_a_power_cut(writer: Writer, tmp_path: Path) -> None:
    with UnsyncedDisk(tmp_path) as disk:
        for number in (1, 2):
            writer.write(tmp_path, disk, number)
        disk.lose_power()
    assert writer.read(tmp_path) == 2


@pytest.mark.parametrize("names_kept", [False, True])
@pytest.mark.parametrize("before", [NOTHING, 1])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_power_cut_while_it_is_written_leaves_what_was_or_what_is_to_be(
    writer: Writer, before: int, names_kept: bool, tmp_path: Path
) -> None:
    before = max(before, int(writer.goes_on))
    for call in range(1, 100):
        root = tmp_path / str(call)
        root.mkdir()
        if before:
            writer.write(root, FileDisk(), before)
        with UnsyncedDisk(root, fails_at=call) as disk:
            try:
                writer.write(root, disk, 2)
            except PowerCut:
                disk.lose_power(names_kept=names_kept)
            else:
                return
        assert writer.read(root) in (before, 2), f"call {call}"
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_exported_dead_letters_are_there_after_a_power_cut_and_may_be_discarded(
    form: str, tmp_path: Path
) -> None:
    ledger = path_ledger(tmp_path / "ledger")
    append(ledger, DEAD_LETTERS, [letter(0), letter(1)])
    exports = tmp_path / "exports"
    exports.mkdir()
    file = exports / f"dead.{form}"
    with UnsyncedDisk(exports) as disk:
        assert export(DeadLetterChoice(str(ledger), "g", "true"), file, disk) == 2
        written = file.read_bytes()
        disk.lose_power()
    assert [path.name for path in exports.glob("dead*")] == [file.name]
    assert file.read_bytes() == written


def test_a_directory_is_on_the_disk_with_those_above_it_that_were_made_for_it(tmp_path: Path) -> None:
    with UnsyncedDisk(tmp_path) as disk:
        make_directory(tmp_path / "one" / "two", disk)
        disk.lose_power()
    assert (tmp_path / "one" / "two").is_dir()


def test_a_directory_whose_file_system_knows_no_sync_is_passed_over_and_a_missing_one_is_not(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError):
        FileDisk().sync_directory(tmp_path / "missing")
    FileDisk().sync_directory(Path("/proc"))
