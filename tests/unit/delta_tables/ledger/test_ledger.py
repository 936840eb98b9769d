"""Where a ledger is, and which tables it creates there."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.ledger import ledger_at
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from delta_tables.views import TABLES
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import path_ledger


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_created_with_its_columns_and_has_its_key_among_them(table: Table, tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(table)
    ledger.create(table)
    stored = DeltaTable(str(ledger.path(table)))
    assert [field.name for field in stored.schema().fields] == table.column_names
    assert set(table.key) <= set(table.column_names)
    assert table.ddl.count(",") >= len(table.columns) - 1


def test_a_delivery_is_keyed_by_group_original_position_and_attempt() -> None:
    assert DELIVERY_KEY == ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    assert DELIVERIES.column_names[:6] == list(DELIVERY_KEY)


@pytest.mark.parametrize("text", ["s3://bucket/ledger", "file:///tmp/ledger", "abfss://c@a.net/l"])
def test_an_address_is_no_ledger(text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{text} is an address: a ledger is a directory"):
        ledger_at(text)


@pytest.mark.parametrize(
    ("text", "schema"), [("main.lmq", "main.lmq"), ("./main.lmq", None), ("ledger", None), ("/a/b.c", None)]
)
def test_two_plain_names_with_a_dot_are_a_catalogs_schema(text: str, schema: str | None) -> None:
    location = ledger_at(text)
    assert location == (PathLedger(Path(text).absolute()) if schema is None else CatalogLedger(schema))
    assert (location.checkpoints is None) == (schema is not None)
    assert location.qualified(DELIVERIES).startswith("main.lmq." if schema else "delta.`/")


@pytest.mark.parametrize("text", ["a[1]", "a%20b", "a\\b", "a\nb", "in/a%41/ledger"])
def test_a_name_that_delta_takes_for_another_place_is_no_ledger(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"in its name .*, which Delta takes for another place"):
        ledger_at(text)
    assert ledger_at("a {b} 100% c#d*é?~'`") == PathLedger(Path("a {b} 100% c#d*é?~'`").absolute())


def test_an_empty_name_is_no_ledger() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        ledger_at(" ")
