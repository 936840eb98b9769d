"""Small files of a ledger on a path stay few while a job appends, and so does what an append reads.

Contract: whatever number of micro-batches a group has had, a table has a bounded number of small files, an
append reads a bounded part of the log, every row is there once as it was written, and a transaction that
Delta knew it still knows. A rewrite that fails fails no append.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from random import randbytes
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger import path_ledger
from delta_tables.ledger.compaction import FILE_SIZES, FileSize, compact
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.table import Table
from tests.support.ledger_rows import START, append, delivery

MANY = pytest.mark.parametrize("batches", [150, pytest.param(1000, marks=pytest.mark.nightly)])
ROWS = 3
MOST_FILES = 51
"""Live files of a table whose rows are few: those it may have, and the one they were put into."""
AT_ONCE = dict.fromkeys(
    ["delta.logRetentionDuration", "delta.deletedFileRetentionDuration"], "interval 0 hours"
)
"""As if hours lay between the commits: what the log may forget it forgets at the next checkpoint."""


@dataclass(frozen=True)
class Read:
    """What an append reads: files that are listed, and bytes of the log."""

    files: int
    log_bytes: int

    @classmethod
    def by_opening(cls, ledger: PathLedger, table: Table) -> Read:
        log = ledger.path(table) / "_delta_log"
        there = {path.name: path.stat().st_size for path in log.iterdir()}
        newest = max((name for name in there if ".checkpoint." in name), default="")
        since = {name: size for name, size in there.items() if name.endswith(".json") and name > newest[:20]}
        return cls(len(ledger.open(table).file_uris()), there.get(newest, 0) + sum(since.values()))


class SparksWriter:
    """Appends what it was given when it is saved, as a writer of Spark's does: a transaction of a group."""

    def __init__(self, given: pa.Table, version: int) -> None:
        self._given = given
        self._version = version

    def save(self, path: str) -> None:
        transaction = CommitProperties(app_transactions=[Transaction("lakemq/g", self._version)])
        write_deltalake(path, self._given, mode="append", commit_properties=transaction)


def deliveries_of(batch_id: int) -> pa.Table:
    first = batch_id * ROWS
    made = [
        delivery(at, batch_id=batch_id, verdict="RETRY" if at % 7 == 0 else "ACK", body=b"x" * (at % 5))
        for at in range(first, first + ROWS)
    ]
    return pa.Table.from_pylist(made, schema=DELIVERIES.arrow_schema)


def report_of(batch_id: int) -> pa.Table:
    queues = [QueueProgress("t", "b", queue, batch_id, batch_id + 1, None) for queue in range(4)]
    return rows(
        queues, consumer_group="g", subscription="*", query_id="q", batch_id=batch_id, recorded_at=START
    )


def at_most(first: list[Read], last: list[Read], factor: float) -> bool:
    read_first, read_last = (sum(each.log_bytes for each in some) for some in (first, last))
    return read_last <= factor * read_first and max(each.files for each in last) <= MOST_FILES


@pytest.mark.long
@MANY
def test_many_reports_leave_few_files_and_cost_the_same_at_the_end(batches: int, tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path)
    ledger.create(CONSUMER_OFFSETS)
    ledger.open(CONSUMER_OFFSETS).alter.set_table_properties(AT_ONCE)
    read: list[Read] = []
    for batch_id in range(batches):
        for repeat in (False, True):
            done = append_arrow_once(
                report_of(batch_id), ledger, CONSUMER_OFFSETS, app_id="lakemq/g/q", version=batch_id
            )
            assert done != repeat, "a batch's report is there once"
        read.append(Read.by_opening(ledger, CONSUMER_OFFSETS))
    assert max(each.files for each in read) <= MOST_FILES
    # A log of 50 commits without a checkpoint, against 50 commits with one.
    assert at_most(read[:50], read[-50:], 2.5), (read[:50], read[-50:])
    assert len(list((ledger.path(CONSUMER_OFFSETS) / "_delta_log").iterdir())) < 200
    per_batch = "SELECT batch_id, count(*) AS n FROM consumer_offsets GROUP BY batch_id"
    found = LedgerReader(tmp_path).sql(per_batch).to_pylist()
    assert {row["batch_id"]: row["n"] for row in found} == dict.fromkeys(range(batches), 4)
    assert ledger.open(CONSUMER_OFFSETS).transaction_version("lakemq/g/q") == batches - 1


@pytest.mark.long
@MANY
def test_many_batches_of_sparks_leave_few_files_and_each_row_as_it_was(batches: int, tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path)
    ledger.create(DELIVERIES)
    ledger.open(DELIVERIES).alter.set_table_properties(AT_ONCE)
    read: list[Read] = []
    for batch_id in range(batches):
        ledger.append(cast(Any, SparksWriter(deliveries_of(batch_id), batch_id)), DELIVERIES)
        read.append(Read.by_opening(ledger, DELIVERIES))
    assert max(each.files for each in read) <= MOST_FILES
    assert at_most(read[:50], read[-50:], 2.5), (read[:50], read[-50:])
    table = ledger.open(DELIVERIES)
    assert table.transaction_version("lakemq/g") == batches - 1
    written = pa.concat_tables([deliveries_of(batch_id) for batch_id in range(batches)])
    stored = pa.table(table.to_pyarrow_table()).select(written.column_names).cast(written.schema)
    assert stored.sort_by("queue_offset").to_pylist() == written.to_pylist()


def data_changes(ledger: PathLedger, table: Table) -> list[bool]:
    """Of each file that was added, whether its commit says that it brings rows."""
    log = ledger.path(table) / "_delta_log"
    lines = [line for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    return [action["add"]["dataChange"] for line in lines if "add" in (action := json.loads(line))]


def test_a_rewrite_brings_no_rows_and_keeps_the_statistics(tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path, file_sizes=(FileSize(1 << 20, 2),))
    ledger.create(DELIVERIES)
    for batch_id in range(4):
        ledger.append(cast(Any, SparksWriter(deliveries_of(batch_id), batch_id)), DELIVERIES)
    assert data_changes(ledger, DELIVERIES) == [True, True, True, False, True]
    packed, last = sorted(
        pa.table(ledger.open(DELIVERIES).get_add_actions(flatten=True)).to_pylist(),
        key=lambda each: int(each["min.queue_offset"]),
    )
    assert (packed["min.queue_offset"], packed["max.queue_offset"]) == (0, 3 * ROWS - 1)
    assert last["min.queue_offset"] == 3 * ROWS
    for column in DELIVERIES.skipping:
        assert f"min.{column}" in packed, column


def test_files_that_have_their_size_are_left_alone(tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", body=randbytes(200_000))])
    (large,) = pa.table(ledger.open(DELIVERIES).get_add_actions())["size_bytes"].to_pylist()
    for offset in (100, 101):
        append(ledger, DELIVERIES, [delivery(offset)])
    sizes = [FileSize(2 * large, 5), FileSize(large, 1)]
    table = ledger.open(DELIVERIES)
    assert compact(table, sizes) == 2
    assert large in pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    assert compact(table, sizes) == 0, "a file beside a large one stays"
    assert compact(table, [FileSize(4 * large, 1)]) == 2
    assert [size.target_bytes for size in FILE_SIZES] == sorted(
        (size.target_bytes for size in FILE_SIZES), reverse=True
    )


def test_replaced_files_go_where_no_stream_needs_them_and_stay_where_one_may(tmp_path: Path) -> None:
    few = (FileSize(1 << 20, 2),)
    ledger = PathLedger(tmp_path, file_sizes=few)
    ledger.create(DELIVERIES, CONSUMER_OFFSETS)
    for table in (DELIVERIES, CONSUMER_OFFSETS):
        # As if hours lay between the commits.
        ledger.open(table).alter.set_table_properties(
            {"delta.deletedFileRetentionDuration": "interval 0 hours"}
        )
    for batch_id in range(3):
        ledger.append(cast(Any, SparksWriter(deliveries_of(batch_id), batch_id)), DELIVERIES)
        ledger.append_arrow(report_of(batch_id), CONSUMER_OFFSETS, app_id="a", version=batch_id)
    left = {
        table.name: len(list(ledger.path(table).glob("*.parquet")))
        for table in (DELIVERIES, CONSUMER_OFFSETS)
    }
    assert left == {"deliveries": 4, "consumer_offsets": 1}


def test_a_rewrite_that_fails_fails_no_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise OSError("no space left on device")

    ledger = PathLedger(tmp_path)
    ledger.create(CONSUMER_OFFSETS)
    monkeypatch.setattr(path_ledger, "compact", fail)
    with caplog.at_level(logging.WARNING):
        assert ledger.append_arrow(report_of(0), CONSUMER_OFFSETS, app_id="a", version=0)
    assert "small files of consumer_offsets" in caplog.text
    assert "no space left" in caplog.text
    assert DeltaTable(str(ledger.path(CONSUMER_OFFSETS))).to_pyarrow_table().num_rows == 4
