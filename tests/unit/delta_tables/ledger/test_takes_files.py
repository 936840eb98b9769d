"""Which tables take the files that tasks write, and which are Spark's to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import note_version
from delta_tables.ledger.file_append import takes_files
from delta_tables.ledger.path_ledger import PathLedger
from tests.support.ledger_rows import delivery
from tests.support.task_rows_here import AskedSparkError, NoSpark, TaskRowsHere, append, offsets


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = PathLedger(tmp_path / "ledger")
    made.create(DELIVERIES)
    return made


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
    with pytest.raises(AskedSparkError):
        append(there, rows)
    assert rows.framed
    with pytest.raises(AskedSparkError):
        note_version(cast("Any", NoSpark()), there, DELIVERIES, app_id="lakemq/g", version=1)
    with pytest.raises(AskedSparkError):
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
