"""Appends of files that tasks have written: what comes between the look at the table and the commit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from store_native.errors import LakeMQError
from tests.support.ledger_rows import delivery
from tests.support.task_rows_here import TaskRowsHere, append, offsets


@dataclass(frozen=True)
class Looking(PathLedger):
    """A ledger whose table is changed before it is looked at, or behind that."""

    before_look: list[Callable[[PathLedger], Any]] = field(default_factory=list)
    behind_look: list[Callable[[PathLedger], Any]] = field(default_factory=list)

    def open(self, table: Table) -> DeltaTable:
        self._change(self.before_look)
        found = super().open(table)
        self._change(self.behind_look)
        return found

    def _change(self, changes: list[Callable[[PathLedger], Any]]) -> None:
        if changes:
            changes.pop(0)(PathLedger(self.directory))


def _nothing(ledger: PathLedger) -> None:
    """No change."""


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = PathLedger(tmp_path / "ledger")
    made.create(DELIVERIES)
    return made


def test_the_files_of_all_tasks_are_one_commit_that_names_the_transaction(ledger: PathLedger) -> None:
    before = ledger.open(DELIVERIES).version()
    assert append(ledger, TaskRowsHere([delivery(0), delivery(7)], [], [delivery(3)]), 5)
    delta = ledger.open(DELIVERIES)
    assert (delta.version(), delta.transaction_version("lakemq/g")) == (before + 1, 5)
    assert offsets(ledger) == [0, 3, 7]
    actions = [json.loads(line) for line in _newest(ledger).read_text().splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    assert len(added) == 2
    for file in added:
        there = ledger.path(DELIVERIES) / file["path"]
        assert (file["size"], file["dataChange"], file["partitionValues"]) == (there.stat().st_size, True, {})
        stats = json.loads(file["stats"])
        assert stats["numRecords"] in (1, 2)
        assert stats["nullCount"].keys() == set(DELIVERIES.skipping)
    assert sorted(json.loads(file["stats"])["maxValues"]["queue_offset"] for file in added) == [3, 7]
    assert ledger.open(DELIVERIES).history(1)[0]["operationMetrics"] == {
        "numFiles": "2",
        "numOutputRows": "3",
        "numOutputBytes": str(sum(file["size"] for file in added)),
    }


def test_the_columns_left_out_are_null_for_readers(ledger: PathLedger) -> None:
    assert append(ledger, TaskRowsHere([delivery(0)]))
    found = ledger.open(DELIVERIES).to_pyarrow_table()
    assert found.column_names == DELIVERIES.column_names
    assert found.column("outbox").null_count == found.column("table_rows").null_count == 1


def test_rows_of_a_version_that_the_table_knows_are_not_even_made(ledger: PathLedger) -> None:
    assert append(ledger, TaskRowsHere([delivery(0)]), 5)
    for version in (4, 5):
        late = TaskRowsHere([delivery(1)])
        assert not append(ledger, late, version)
        assert late.made == 0
    assert append(ledger, TaskRowsHere([delivery(2)]), 6)
    assert offsets(ledger) == [0, 2]


def test_a_batch_without_a_row_notes_its_version(ledger: PathLedger) -> None:
    assert append(ledger, TaskRowsHere([], []), 5)
    assert ledger.open(DELIVERIES).transaction_version("lakemq/g") == 5
    assert not append(ledger, TaskRowsHere([delivery(0)]), 5)


@pytest.mark.parametrize("version", [5, 6])
def test_what_a_newer_driver_commits_while_the_rows_are_made_shuts_them_out(
    ledger: PathLedger, version: int
) -> None:
    def take() -> None:
        assert ledger.note_version(DELIVERIES, app_id="lakemq/g", version=version)

    rows = TaskRowsHere([delivery(0)], meanwhile=take)
    assert not append(ledger, rows, 5)
    assert rows.made == 1
    assert offsets(ledger) == []


def test_an_older_drivers_commit_while_the_rows_are_made_does_not(ledger: PathLedger) -> None:
    def late() -> None:
        assert ledger.note_version(DELIVERIES, app_id="lakemq/g", version=4)

    rows = TaskRowsHere([delivery(0)], meanwhile=late)
    assert append(ledger, rows, 5)
    assert (rows.made, offsets(ledger)) == (1, [0])
    assert ledger.open(DELIVERIES).transaction_version("lakemq/g") == 5


def _append_of_another_group(ledger: PathLedger) -> None:
    row = pa.Table.from_pylist([delivery(9)], schema=DELIVERIES.arrow_schema)
    assert ledger.append_arrow(row, DELIVERIES, app_id="lakemq/other", version=5)


def _compaction(ledger: PathLedger) -> None:
    assert ledger.open(DELIVERIES).optimize.compact()["numFilesRemoved"] == 2


def _property(ledger: PathLedger) -> None:
    ledger.open(DELIVERIES).alter.set_table_properties({"delta.checkpointInterval": "7"})


def _column(ledger: PathLedger) -> None:
    from deltalake import Schema

    added = Schema.from_arrow(pa.schema([("of_an_operator", pa.string())])).fields
    ledger.open(DELIVERIES).alter.add_columns(added)


@pytest.mark.parametrize("change", [_append_of_another_group, _compaction, _property, _column])
def test_what_else_comes_while_the_rows_are_made_costs_them_nothing(
    ledger: PathLedger, change: Callable[[PathLedger], None]
) -> None:
    for version in (1, 2):
        assert append(ledger, TaskRowsHere([delivery(version)]), version)
    rows = TaskRowsHere([delivery(3)], meanwhile=lambda: change(ledger))
    assert append(ledger, rows, 3)
    assert rows.made == 1
    assert offsets(ledger)[:3] == [1, 2, 3]


def test_a_table_that_asks_for_more_while_the_rows_are_made_does_not_take_them(ledger: PathLedger) -> None:
    def constrain() -> None:
        ledger.open(DELIVERIES).alter.add_constraint({"mine": "attempt < 3"})

    with pytest.raises(
        LakeMQError, match="was changed while a batch was handled and is Spark's to write now"
    ):
        append(ledger, TaskRowsHere([delivery(0, 4)], meanwhile=constrain))
    assert offsets(ledger) == []


def test_a_table_that_is_changed_behind_each_look_is_said(tmp_path: Path) -> None:
    ledger = Looking(tmp_path / "ledger", behind_look=[_property] * 9)
    ledger.create(DELIVERIES)
    rows = TaskRowsHere([delivery(0)])
    with pytest.raises(LakeMQError, match=f"deliveries of {tmp_path}/ledger: .*Metadata changed"):
        append(ledger, rows)
    assert (rows.made, len(ledger.behind_look)) == (1, 3), "it was tried five times"
    assert offsets(ledger) == []


def test_a_commit_that_spark_wrote_over_is_made_again(tmp_path: Path) -> None:
    """Its log store on a path looks whether the version is there, then renames its file to it."""
    theirs = json.dumps({"commitInfo": {"operation": "WRITE", "timestamp": 0}})
    ledger = Looking(tmp_path / "ledger", before_look=[_nothing, lambda it: _newest(it).write_text(theirs)])
    ledger.create(DELIVERIES)
    rows = TaskRowsHere([delivery(0)])
    assert append(ledger, rows, 5)
    assert (rows.made, offsets(ledger)) == (1, [0])
    assert ledger.open(DELIVERIES).transaction_version("lakemq/g") == 5
    assert sorted((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))[-2].read_text() == theirs


def test_a_table_that_cannot_be_looked_at_behind_the_commit_has_the_rows_all_the_same(tmp_path: Path) -> None:
    def fail(ledger: PathLedger) -> None:
        raise OSError("Too many open files")

    ledger = Looking(tmp_path / "ledger", before_look=[_nothing, fail])
    ledger.create(DELIVERIES)
    assert append(ledger, TaskRowsHere([delivery(0)]))
    assert offsets(ledger) == [0]


def test_a_log_that_was_shortened_while_the_rows_were_made_costs_them_nothing(ledger: PathLedger) -> None:
    def shorten() -> None:
        for version in range(1, 6):
            assert ledger.note_version(DELIVERIES, app_id="other", version=version)
        ledger.open(DELIVERIES).create_checkpoint()
        for path in sorted((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))[:-1]:
            path.unlink()

    rows = TaskRowsHere([delivery(0)], meanwhile=shorten)
    assert append(ledger, rows)
    assert (rows.made, offsets(ledger)) == (1, [0])


def test_a_checkpoint_of_the_log_that_fails_fails_no_append(ledger: PathLedger) -> None:
    ledger.open(DELIVERIES).alter.set_table_properties({"delta.checkpointInterval": "1"})
    (ledger.path(DELIVERIES) / "_delta_log" / f"{2:020}.checkpoint.parquet").mkdir()
    assert append(ledger, TaskRowsHere([delivery(0)]))
    assert offsets(ledger) == [0]


_FULL = """
import resource, sys
from pathlib import Path
from delta_tables.ledger.path_ledger import PathLedger
from store_native.errors import LakeMQError
from tests.support.ledger_rows import delivery
from tests.support.task_rows_here import TaskRowsHere, append
ledger = PathLedger(Path(sys.argv[1]))
full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    append(ledger, TaskRowsHere([delivery(0)], meanwhile=full))
except LakeMQError as error:
    print(error)
"""


def test_a_disk_that_takes_no_commit_is_said_in_one_line_with_the_table(ledger: PathLedger) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _FULL, ledger.directory], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(f"SYSTEM_ERROR: {ledger.path(DELIVERIES)}: Generic LocalFileSystem error")
    assert ran.stdout.endswith("File too large (os error 27)\n")
    assert "\x1b" not in ran.stdout
    assert offsets(ledger) == []
    assert append(ledger, TaskRowsHere([delivery(1)]))


def test_rows_that_the_driver_has_are_appended_as_they_are(ledger: PathLedger) -> None:
    rows = pa.Table.from_pylist([delivery(4)], schema=DELIVERIES.arrow_schema).select(TaskRowsHere.columns)
    assert append(ledger, rows, 5)
    assert not append(ledger, rows, 5)
    assert offsets(ledger) == [4]


def _newest(ledger: PathLedger) -> Path:
    return max((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))
