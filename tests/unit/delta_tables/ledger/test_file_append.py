"""Appends of files that tasks have written: which tables take them, and what comes before the commit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_rows_once, note_version
from delta_tables.ledger.file_append import takes_files
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from delta_tables.task_rows import ArrowFunction
from store_native.errors import LakeMQError
from tests.support.ledger_rows import delivery

Change = Callable[[DeltaTable], Any]


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


class NoSpark:
    """A session that is not to be asked."""

    def createDataFrame(self, rows: Any, schema: Any = None) -> Any:
        raise NotImplementedError


class TaskRowsHere:
    """Rows that two tasks make in this process; `meanwhile` is called once they are made."""

    columns = tuple(name for name in DELIVERIES.column_names if name not in ("outbox", "table_rows"))

    def __init__(self, *tasks: list[dict[str, Any]], meanwhile: Callable[[], None] = lambda: None) -> None:
        self._tasks = tasks
        self._meanwhile = meanwhile
        self.made = 0
        self.framed = False

    def frame(self) -> Any:
        self.framed = True
        raise NotImplementedError

    def through(self, task: Callable[[ArrowFunction], ArrowFunction], ddl: str) -> Any:
        self._task, self._ddl = task, ddl
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        self.made += 1
        found: list[tuple[Any, ...]] = []
        for rows in self._tasks:

            def make(numbers: Iterator[pa.RecordBatch], rows: list[dict[str, Any]] = rows) -> Any:
                yield from pa.Table.from_pylist(rows, schema=DELIVERIES.arrow_schema).to_batches()

            for batch in self._task(make)(iter(())):
                assert [f"{field.name}" for field in batch.schema] == [
                    column.split()[0] for column in self._ddl.split(", ")
                ]
                found += [tuple(row.values()) for row in batch.to_pylist()]
        self._meanwhile()
        return found


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = PathLedger(tmp_path / "ledger")
    made.create(DELIVERIES)
    return made


def append(ledger: PathLedger, rows: TaskRowsHere | pa.Table, version: int = 1) -> bool:
    return append_rows_once(
        cast("Any", rows),
        ledger,
        DELIVERIES,
        app_id="lakemq/g",
        version=version,
        spark=cast("Any", NoSpark()),
    )


def offsets(ledger: PathLedger) -> list[int]:
    return sorted(ledger.open(DELIVERIES).to_pyarrow_table().column("queue_offset").to_pylist())


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
    _set(delta__checkpointInterval="1")(str(ledger.path(DELIVERIES)))
    (ledger.path(DELIVERIES) / "_delta_log" / f"{2:020}.checkpoint.parquet").mkdir()
    assert append(ledger, TaskRowsHere([delivery(0)]))
    assert offsets(ledger) == [0]


_FULL = """
import resource, sys
from pathlib import Path
from tests.unit.delta_tables.ledger.test_file_append import *
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


def _partitioned(path: str) -> None:
    DeltaTable.create(
        path,
        DELIVERIES.described_schema,
        partition_by=["topic"],
        configuration={"delta.dataSkippingStatsColumns": ",".join(DELIVERIES.skipping)},
    )


def _set(**properties: str) -> Callable[[str], None]:
    def made(path: str) -> None:
        table = DeltaTable(path)
        table.alter.set_table_properties(
            {name.replace("__", "."): value for name, value in properties.items()}, raise_if_not_exists=False
        )

    return made


def _constrained(path: str) -> None:
    DeltaTable(path).alter.add_constraint({"mine": "attempt < 1000"})


def _recorded(path: str) -> None:
    _set(delta__enableChangeDataFeed="true")(path)


def _not_null(path: str) -> None:
    fields = [
        field if field.name != "topic" else field.with_nullable(False) for field in DELIVERIES.arrow_schema
    ]
    DeltaTable.create(
        path,
        pa.schema(fields),
        configuration={"delta.dataSkippingStatsColumns": ",".join(DELIVERIES.skipping)},
    )


def _of_an_earlier_version(path: str) -> None:
    earlier = replace(DELIVERIES, columns=DELIVERIES.columns[:-1])
    PathLedger(Path(path).parent).create(earlier)


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        (_partitioned, True),
        (_not_null, True),
        (_of_an_earlier_version, True),
        (_set(delta__dataSkippingStatsColumns="topic"), False),
        (_set(delta__dataSkippingStatsColumns=",".join([*DELIVERIES.skipping, "worker"])), False),
        (_set(delta__randomizeFilePrefixes="true"), False),
        (_set(delta__randomizePrefixLength="2"), False),
        (_set(delta__compatibility__symlinkFormatManifest__enabled="true"), False),
        (_recorded, False),
        (_constrained, False),
    ],
)
def test_a_table_that_asks_for_more_than_this_versions_rows_is_sparks_to_write(
    ledger: PathLedger, tmp_path: Path, change: Callable[[str], None], anew: bool
) -> None:
    there = PathLedger(tmp_path / "another") if anew else ledger
    change(str(there.path(DELIVERIES)))
    assert not takes_files(there.open(DELIVERIES), DELIVERIES)
    rows = TaskRowsHere([delivery(0)])
    with pytest.raises(NotImplementedError):
        append(there, rows)
    assert rows.framed
    with pytest.raises(NotImplementedError):
        note_version(cast("Any", NoSpark()), there, DELIVERIES, app_id="lakemq/g", version=1)
    with pytest.raises(NotImplementedError):
        append(there, pa.Table.from_pylist([delivery(0)], schema=DELIVERIES.arrow_schema))


def _without_checks(path: str) -> None:
    PathLedger(Path(path).parent).create(replace(DELIVERIES, checks=()))


def _with_a_later_column(path: str) -> None:
    PathLedger(Path(path).parent).create(
        replace(DELIVERIES, columns=(*DELIVERIES.columns, replace(DELIVERIES.columns[0], name="later")))
    )


@pytest.mark.parametrize(
    "change",
    [
        _set(delta__appendOnly="true"),
        _set(delta__isolationLevel="Serializable"),
        _set(delta__logRetentionDuration="interval 3 days"),
        _set(note="an operator's", lakemq__note="ours"),
        _set(delta__dataSkippingStatsColumns=", ".join(f"`{name}`" for name in DELIVERIES.skipping)),
    ],
)
def test_what_an_operator_sets_that_asks_nothing_of_the_files_changes_nothing(
    ledger: PathLedger, change: Callable[[str], None]
) -> None:
    change(str(ledger.path(DELIVERIES)))
    assert append(ledger, TaskRowsHere([delivery(0)]))
    assert offsets(ledger) == [0]


@pytest.mark.parametrize("make", [_without_checks, _with_a_later_column])
def test_a_table_of_another_version_whose_rows_may_be_these_takes_files(
    tmp_path: Path, make: Callable[[str], None]
) -> None:
    ledger = PathLedger(tmp_path / "ledger")
    make(str(ledger.path(DELIVERIES)))
    assert append(ledger, TaskRowsHere([delivery(0)]))
    assert offsets(ledger) == [0]


def _newest(ledger: PathLedger) -> Path:
    return max((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))
