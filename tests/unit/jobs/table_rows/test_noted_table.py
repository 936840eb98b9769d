"""A name stands for one table: wherever that is moved, and whatever is at its place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.user_tables.path_table import PathTable
from jobs.table_rows.noted_table import FILE, noted_table
from store_native.errors import DataCorrupt, InvalidRequest


def made(path: Path) -> PathTable:
    DeltaTable.create(str(path), schema=pa.schema([pa.field("a", pa.int64())]))
    return PathTable("invoices", str(path))


def test_the_table_of_a_name_may_move_and_no_other_may_take_its_place(tmp_path: Path) -> None:
    checkpoint, table = tmp_path / "checkpoint", made(tmp_path / "t")
    first = noted_table(checkpoint, table)
    assert noted_table(checkpoint, table) == first == table.table_id()
    moved = PathTable("invoices", str((tmp_path / "t").rename(tmp_path / "moved")))
    assert noted_table(checkpoint, moved) == first
    for place in ("t", "elsewhere"):
        with pytest.raises(InvalidRequest, match=f"write-to invoices: the table at .*{place} is not the"):
            noted_table(checkpoint, made(tmp_path / place))
    assert noted_table(checkpoint, moved) == first


def test_a_note_that_is_not_readable_is_an_error(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    noted_table(tmp_path, table)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(DataCorrupt, match="does not say which table invoices is"):
        noted_table(tmp_path, table)
