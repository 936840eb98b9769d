"""Tables that another version made: they get what they lack, keep what they have, or are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Schema, write_deltalake

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.data_losses import DATA_LOSSES
from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.stored_columns import StoredColumn, missing_columns
from delta_tables.ledger_reader import LedgerReader
from delta_tables.table import Column, Table
from delta_tables.views import TABLES, VIEWS
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import START, append, delivery, path_ledger

NOTE = Column("note", pa.string(), "a later version's")
ONE_OF_EACH_TYPE = (
    *("reason", "keys", "finished_at", "attempt", "batch_id", "properties", "body", "outbox", "table_rows"),
)


def stored(table: Table) -> list[StoredColumn]:
    return [StoredColumn(column.name, column.ddl.lower(), True) for column in table.columns]


def without(table: Table, *names: str) -> Table:
    """The table as a version wrote it that did not have some columns."""
    return replace(
        table,
        columns=tuple(column for column in table.columns if column.name not in names),
        skipping=tuple(name for name in table.skipping if name not in names),
        checks=(),
    )


def names_of(ledger: PathLedger, table: Table) -> list[str]:
    return [field.name for field in ledger.open(table).schema().fields]


def report(ledger: PathLedger, batch_id: int) -> bool:
    progress = [QueueProgress("orders", "broker-a", 0, 5 * batch_id, 5 * batch_id + 5, None)]
    made = rows(
        progress, consumer_group="g", subscription="*", query_id="q", batch_id=batch_id, recorded_at=START
    )
    return append_arrow_once(made, ledger, CONSUMER_OFFSETS, app_id="a", version=batch_id)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_known_where_it_is_as_this_version_writes_it(table: Table, tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(table)
    version = ledger.open(table).version()
    ledger.fit(table)
    assert ledger.open(table).version() == version


def test_what_a_table_lacks_is_found_whatever_its_order_and_case() -> None:
    there = [replace(column, name=column.name.upper()) for column in reversed(stored(DATA_LOSSES))]
    assert missing_columns(there, DATA_LOSSES, "l") == []
    assert [c.name for c in missing_columns(there[1:], DATA_LOSSES, "l")] == ["recorded_at"]
    assert missing_columns([*there, StoredColumn("note", "string", True)], DATA_LOSSES, "l") == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (StoredColumn("queue_id", "bigint", True), "queue_id is bigint there, int here"),
        (StoredColumn("note", "string", False), "note must not be null there"),
    ],
)
def test_a_table_that_rows_do_not_fit_is_refused_by_name(changed: StoredColumn, said: str) -> None:
    there = {column.name: column for column in stored(DATA_LOSSES)} | {changed.name: changed}
    with pytest.raises(InvalidRequest, match=f"data_losses of the-ledger .*{said}"):
        missing_columns(there.values(), DATA_LOSSES, "the-ledger")


def test_a_ledger_one_column_behind_gets_it_and_keeps_its_rows(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    older = without(CONSUMER_OFFSETS, "recorded_ms")
    ledger.create(older)
    before = {"consumer_group": "g", "topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    write_deltalake(
        str(ledger.path(older)),
        pa.Table.from_pylist([before | {"next_offset": 5, "batch_id": 0}], schema=older.arrow_schema),
        mode="append",
    )
    ledger.fit(CONSUMER_OFFSETS)
    assert set(names_of(ledger, CONSUMER_OFFSETS)) == set(CONSUMER_OFFSETS.column_names)
    assert report(ledger, 1)
    found = LedgerReader(tmp_path).sql(
        "SELECT batch_id, next_offset, recorded_ms FROM consumer_offsets ORDER BY batch_id"
    )
    recorded_ms = round(START.timestamp() * 1000)
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, 5, None), (1, 10, recorded_ms)]


def test_a_ledger_one_column_ahead_is_appended_to_and_keeps_it(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    later = replace(
        CONSUMER_OFFSETS, columns=(CONSUMER_OFFSETS.columns[0], NOTE, *CONSUMER_OFFSETS.columns[1:])
    )
    ledger.create(later)
    noted = {"consumer_group": "g", "note": "kept", "batch_id": 0}
    write_deltalake(
        str(ledger.path(later)), pa.Table.from_pylist([noted], schema=later.arrow_schema), mode="append"
    )
    ledger.fit(CONSUMER_OFFSETS)
    assert report(ledger, 1)
    assert names_of(ledger, CONSUMER_OFFSETS) == later.column_names
    found = LedgerReader(tmp_path).sql(
        "SELECT batch_id, note, next_offset FROM consumer_offsets ORDER BY batch_id"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, "kept", None), (1, None, 10)]


def test_rows_with_a_column_that_the_table_lacks_are_not_cut(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(without(CONSUMER_OFFSETS, "recorded_ms"))
    with pytest.raises(AssertionError, match="recorded_ms"):
        report(ledger, 1)


def test_a_reader_shows_null_in_columns_that_an_older_ledger_lacks(tmp_path: Path) -> None:
    types = {column.type for column in DELIVERIES.columns}
    assert {column.type for column in DELIVERIES.columns if column.name in ONE_OF_EACH_TYPE} == types
    ledger = path_ledger(tmp_path)
    older = without(DELIVERIES, *ONE_OF_EACH_TYPE)
    append(ledger, older, [{name: delivery(3).get(name) for name in older.column_names}])
    reader = LedgerReader(tmp_path)
    found = reader.sql(f"SELECT message_id, {', '.join(ONE_OF_EACH_TYPE)} FROM deliveries")
    assert found.to_pylist() == [{"message_id": "ID3", **dict.fromkeys(ONE_OF_EACH_TYPE)}]
    assert reader.sql("SELECT message_id FROM delivery_history").to_pylist() == [{"message_id": "ID3"}]
    for view in VIEWS:
        assert reader.sql(f"SELECT count(*) AS n FROM {view}").num_rows == 1, view
    assert names_of(ledger, DELIVERIES) == older.column_names, "a reader changes nothing"


@pytest.mark.parametrize(
    "condition",
    [
        "reason = 'no'",
        "attempt > 0",
        "batch_id <> 1",
        "finished_at < TIMESTAMP '2030-01-01 00:00:00Z'",
        "keys = make_array('')",
        "array_contains(keys, '')",
        "properties[''] = ''",
        "body = X'00'",
        "array_length(outbox) > 0",
        "array_length(table_rows) > 0",
    ],
)
def test_no_row_of_an_older_ledger_has_a_value_in_a_column_that_it_lacks(
    tmp_path: Path, condition: str
) -> None:
    ledger = path_ledger(tmp_path)
    older = without(DELIVERIES, *ONE_OF_EACH_TYPE)
    append(ledger, older, [{name: delivery(3).get(name) for name in older.column_names}])
    reader = LedgerReader(tmp_path)
    assert reader.sql(f"SELECT message_id FROM deliveries WHERE {condition}").to_pylist() == []
    assert reader.sql(f"SELECT message_id FROM deliveries WHERE NOT ({condition})").to_pylist() == []


def test_a_column_of_another_type_stops_a_job_before_it_writes(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    first, *others = DATA_LOSSES.columns
    other = replace(DATA_LOSSES, columns=(replace(first, type=pa.int64()), *others))
    ledger.create(other)
    version = ledger.open(DATA_LOSSES).version()
    with pytest.raises(InvalidRequest, match="consumer_group is bigint there, string here"):
        ledger.fit(DATA_LOSSES)
    assert ledger.open(DATA_LOSSES).version() == version
    assert Schema.from_arrow(other.described_schema) == ledger.open(DATA_LOSSES).schema()
