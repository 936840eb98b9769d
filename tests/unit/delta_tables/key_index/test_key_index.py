"""Deliveries by key: exact whatever maintenance did or left undone, and out of few files.

Contract: `deliveries_by_key` has a row for each key of each row of `deliveries`, once, at every moment; a key
is looked up in the index's files whose range has it, and in files of `deliveries` that are not indexed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures

from delta_tables.deliveries import DELIVERIES
from delta_tables.key_index.generations import KeyIndex
from delta_tables.key_index.message_keys import KEYED_COLUMNS, MESSAGE_KEYS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.spans import quoted
from delta_tables.ledger_reader import LedgerReader, LedgerSnapshot
from delta_tables.maintenance import maintain
from store_native.errors import Unavailable
from tests.support.ledger_rows import START, append, delivery, path_ledger

COLUMNS = ("key", *KEYED_COLUMNS)
SHARED = "x" * 80
"""Longer than the bounds that a file's statistics keep of a text."""
QUOTES = "it's \\ \""
ALL = f"SELECT {', '.join(COLUMNS)} FROM deliveries_by_key"


class Killed(Exception):
    """Where a run breaks off."""


@dataclass
class KilledAt:
    """Ends a run behind its n-th commit."""

    left: int

    def __call__(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed


def small(ledger: PathLedger, **options: Any) -> KeyIndex:
    """An index that puts a few rows into a generation."""
    return replace(KeyIndex(ledger, least_bytes=0, most_rows=40, most_small=2, pass_rows=7), **options)


def name_files(ledger: PathLedger, names: Sequence[str]) -> None:
    """Has the table's log name files of one row each, by one commit."""
    table = ledger.path(DELIVERIES)
    actions = [
        {
            "add": {
                "path": name,
                "partitionValues": {},
                "size": (table / name).stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 1}),
            }
        }
        for name in names
    ]
    log = table / "_delta_log" / f"{ledger.open(DELIVERIES).version() + 1:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def compared(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows)


def wanted(ledger: LedgerSnapshot) -> list[dict[str, Any]]:
    """The view's rows as they follow from those of the table."""
    rows = ledger.sql(f"SELECT {', '.join(('keys', *KEYED_COLUMNS))} FROM deliveries").to_pylist()
    return [
        {"key": key, **{name: row[name] for name in KEYED_COLUMNS}}
        for row in rows
        for key in dict.fromkeys(row["keys"] or ())
        if key is not None
    ]


def check(ledger: PathLedger, draw: Random) -> None:
    snapshot = LedgerReader(ledger.directory).snapshot()
    there = wanted(snapshot)
    assert compared(snapshot.sql(ALL).to_pylist()) == compared(there)
    for key in {"none", *draw.sample([row["key"] for row in there], min(2, len(there)))}:
        found = snapshot.sql(f"{ALL} WHERE key = {quoted(key)}").to_pylist()
        assert compared(found) == compared([row for row in there if row["key"] == key])


def some_rows(draw: Random, first: int, day: int) -> list[dict[str, Any]]:
    def keys() -> list[str] | None:
        drawn = [
            f"{draw.choice(['', SHARED, 'é', QUOTES])}{draw.randrange(60)}" for _ in range(draw.randrange(4))
        ]
        return draw.choice([drawn, [*drawn, *drawn], [*drawn, "all"], ["all"], [], None])

    at = START + timedelta(days=day)
    return [
        delivery(
            first + n,
            keys=keys(),
            finished_at=at + timedelta(seconds=n),
            verdict=draw.choice(["ACK", "ACK", "DROPPED"]),
            batch_id=first,
            reason=draw.choice([None, "no"]),
        )
        for n in range(draw.randrange(1, 12))
    ]


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 60))]
)
def test_the_view_tells_each_key_of_each_row_once_whatever_was_done_before(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, some_rows(draw, 0, 0))

    def broken_off() -> None:
        append(ledger, DELIVERIES, some_rows(draw, draw.randrange(10**6), day))
        with contextlib.suppress(Killed):  # it may have ended before
            small(ledger, committed=KilledAt(draw.randrange(1, 5))).update()

    def delete_without_maintenance() -> None:
        ledger.open(DELIVERIES).delete(f"queue_offset % 7 = {draw.randrange(7)}")

    def shorten() -> None:
        maintain(ledger, keep_days=2, now=START + timedelta(days=day))

    steps: list[Callable[[], Any]] = [
        lambda: append(ledger, DELIVERIES, some_rows(draw, draw.randrange(10**6), day)),
        lambda: small(ledger).update(),
        lambda: ledger.open(DELIVERIES).optimize.compact(),
        lambda: small(ledger, least_bytes=draw.randrange(20_000)).update(),
        broken_off,
        delete_without_maintenance,
        shorten,
    ]
    for step in range(14):
        day = step
        draw.choice([steps[0], *steps])()
        check(ledger, draw)


def test_a_snapshot_is_told_out_of_a_later_index(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n) for n in range(9)])
    snapshot = LedgerReader(ledger.directory).snapshot()
    before = compared(wanted(snapshot))
    append(ledger, DELIVERIES, [delivery(n) for n in range(9, 20)])
    ledger.open(DELIVERIES).optimize.compact()
    small(ledger).update()
    assert compared(snapshot.sql(ALL).to_pylist()) == before


def test_a_second_run_is_refused_and_a_reader_beside_the_first_is_told_all(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    commits: list[str] = []

    def beside() -> None:
        with pytest.raises(Unavailable, match="message_keys"):
            small(ledger).update()
        check(ledger, Random(len(commits)))
        commits.append("")

    for batch in range(4):
        append(ledger, DELIVERIES, [delivery(30 * batch + n) for n in range(30)])
        small(ledger, most_rows=90, pass_rows=20, committed=beside).update()
    assert len(commits) > 12


def files_with(ledger: PathLedger, key: str) -> list[Path]:
    """The files of the index whose range has a key, or that list what is indexed."""
    added = pa.table(ledger.open(MESSAGE_KEYS).get_add_actions(flatten=True)).to_pylist()
    return [
        ledger.path(MESSAGE_KEYS) / each["path"]
        for each in added
        if each["min.key"] is None or each["min.key"] <= key <= each["max.key"]
    ]


def test_a_look_up_opens_one_file_of_a_generation_and_none_that_it_tells(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    for batch in range(4):
        append(
            ledger, DELIVERIES, [delivery(n, keys=[f"K{n * 7919 % 1000:03}"]) for n in range(batch, 1000, 4)]
        )
    small(ledger, most_rows=500, pass_rows=50).update()
    append(ledger, DELIVERIES, [delivery(2000, keys=["K420", "new"])])
    opened = files_with(ledger, "K420")
    data = [path for path in opened if ledger_key_count(path)]
    assert len(data) == 2, "one of each generation"
    for path in ledger.path(MESSAGE_KEYS).rglob("*.parquet"):
        if path not in opened:
            path.write_bytes(b"not to be opened")
    newest = max(ledger.path(DELIVERIES).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    for path in ledger.path(DELIVERIES).glob("*.parquet"):
        if path != newest:
            path.unlink()
    found = LedgerReader(ledger.directory).sql(
        "SELECT queue_offset AS n FROM deliveries_by_key WHERE key = 'K420' ORDER BY 1"
    )
    assert [row["n"] for row in found.to_pylist()] == [n for n in range(1000) if n * 7919 % 1000 == 420] + [
        2000
    ]


def test_an_index_of_which_a_part_is_missing_is_none_until_maintenance(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n, keys=[f"K{n}"]) for n in range(100)])
    question = "SELECT queue_offset AS n FROM deliveries_by_key WHERE key = 'K42'"
    index = ledger.path(MESSAGE_KEYS)
    small(ledger).update()
    for lost in ("first file", "last file", "first commit", "log"):
        if lost == "log":
            shutil.rmtree(index / "_delta_log")
        elif lost == "first commit":
            (index / "_delta_log" / f"{0:020}.json").unlink()
        else:
            choose = min if lost == "first file" else max
            choose(index.rglob("*.parquet")).unlink()
        assert LedgerReader(ledger.directory).sql(question).to_pylist() == [{"n": 42}]
        small(ledger).update()
        assert LedgerReader(ledger.directory).sql(question).to_pylist() == [{"n": 42}]
        assert files_with(ledger, "K42"), "it is made anew"


def test_more_files_than_a_statement_takes_are_read_and_indexed(tmp_path: Path) -> None:
    """An engine that is asked for 1,500 files by name ends its process."""
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0, keys=["K0"])])
    rows = [
        pa.Table.from_pylist([delivery(n, keys=[f"K{n % 7}"])], DELIVERIES.arrow_schema)
        for n in range(1, 450)
    ]
    for n, row in enumerate(rows):
        pq.write_table(row, ledger.path(DELIVERIES) / f"part-{n}.parquet")
    name_files(ledger, [f"part-{n}.parquet" for n in range(len(rows))])
    question = "SELECT count(*) AS n FROM deliveries_by_key WHERE key = 'K3'"
    wanted_rows = sum(n % 7 == 3 for n in range(1, 450))
    assert LedgerReader(ledger.directory).sql(question).to_pylist() == [{"n": wanted_rows}]
    small(ledger, most_rows=100_000, most_small=8, pass_rows=1_000).update()
    assert LedgerReader(ledger.directory).sql(question).to_pylist() == [{"n": wanted_rows}]
    added = pa.table(ledger.open(MESSAGE_KEYS).get_add_actions(flatten=True))
    assert len(set(added.column("partition.generation").to_pylist())) == 3


def test_a_key_that_all_messages_have_is_written_in_pieces(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    many = [delivery(n, keys=["all", *(f"{n}-{k}" for k in range(5))]) for n in range(20_000)]
    append(ledger, DELIVERIES, many)
    sizes: list[int] = []
    index = small(ledger, most_rows=1 << 20, pass_rows=10_000)

    def note() -> None:
        sizes.append(index.ledger.open(MESSAGE_KEYS).count())

    replace(index, committed=note).update()
    written = [after - before for before, after in pairwise([0, *sizes])]
    assert sum(written) == 120_001
    assert max(written) < 30_000, "a pass, and what a batch of the engine's has beyond it"


def ledger_key_count(path: Path) -> int:
    keys = pq.ParquetFile(path).read(columns=["key"]).column("key")
    return int(len(keys) - keys.null_count)


def test_generations_stay_few_and_what_was_deleted_leaves_the_index(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)

    def generations() -> dict[int, int]:
        added = pa.table(ledger.open(MESSAGE_KEYS).get_add_actions(flatten=True)).to_pylist()
        told: dict[int, int] = {}
        for each in added:
            kept = each["num_records"] if each["min.key"] is not None else 0
            told[each["partition.generation"]] = told.get(each["partition.generation"], 0) + kept
        return told

    for batch in range(20):
        append(ledger, DELIVERIES, [delivery(10 * batch + n, batch_id=batch) for n in range(10)])
        small(ledger).update()
    assert sum(generations().values()) == 2 * 200
    assert len(generations()) <= 200 // 20 + 2
    ledger.open(DELIVERIES).delete("queue_offset < 150")
    small(ledger).update()
    small(ledger).update()
    assert sum(generations().values()) <= 2 * 70, "no more than is told, and what is half of a generation"
    check(ledger, Random(0))


def test_files_that_an_append_will_rewrite_are_not_indexed(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0)])
    maintain(ledger)
    assert not ledger.exists(MESSAGE_KEYS)
    check(ledger, Random(0))


@pytest.mark.parametrize("is_locked", [False, True])
def test_maintenance_indexes_what_stays_also_beside_a_group(tmp_path: Path, is_locked: bool) -> None:
    ledger = path_ledger(tmp_path)
    rows = [delivery(n, keys=[f"K{n}"], body=Random(n).randbytes(2000)) for n in range(5000)]
    append(ledger, DELIVERIES, rows)
    if is_locked:
        (lock,) = ledger.writer_locks([DELIVERIES])
        lock.acquire()
        with pytest.raises(Unavailable, match="deliveries"):
            maintain(ledger, keep_days=30)
        lock.release()
    else:
        maintain(ledger)
    for path in ledger.path(DELIVERIES).glob("*.parquet"):
        path.unlink()
    found = LedgerReader(ledger.directory).sql("SELECT queue_offset FROM deliveries_by_key WHERE key = 'K17'")
    assert found.to_pylist() == [{"queue_offset": 17}]


@pytest.mark.parametrize("name", ["a b", "it's", "100%", "ü*?#"])
def test_a_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    ledger = path_ledger(tmp_path / name)
    append(ledger, DELIVERIES, [delivery(n) for n in range(3)])
    small(ledger).update()
    append(ledger, DELIVERIES, [delivery(3)])
    check(ledger, Random(0))


def test_a_table_with_marks_of_deleted_rows_is_read_itself(tmp_path: Path) -> None:
    """Its files are no more what they hold; here one names a feature without having such marks."""
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n) for n in range(3)])
    small(ledger).update()
    ledger.open(DELIVERIES).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    for path in ledger.path(MESSAGE_KEYS).rglob("*.parquet"):
        path.unlink()
    check(ledger, Random(0))


def test_an_index_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n) for n in range(3)])
    small(ledger).update()
    shutil.rmtree(ledger.path(MESSAGE_KEYS))
    check(ledger, Random(0))
    small(ledger).update()
    assert DeltaTable(str(ledger.path(MESSAGE_KEYS))).version() > 0
    check(ledger, Random(0))
