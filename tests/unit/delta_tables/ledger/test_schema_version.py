"""The version of a table's columns: it is there, goes up once, and says who must not write."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_tables.data_losses import DATA_LOSSES
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.schema_version import is_behind
from delta_tables.ledger_reader import LedgerReader
from delta_tables.table import Column, Table, spark_text
from delta_tables.views import TABLES
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import path_ledger

VERSION = "lakemq.schema_version"
COLUMNS = {
    "skipped_messages 1.0": "e9a413749400",
    "messages 1.0": "4314286e3c65",
    "deliveries 1.1": "9bc4e7c2bb36",
    "dead_letters 1.0": "dc3a8155e94f",
    "consumer_offsets 1.0": "48c50dcabc6e",
    "data_losses 1.0": "6012d3361517",
    "replays 1.1": "322b77a0f3b4",
    "sent_messages 1.0": "f56ee06807e3",
    "written_rows 1.0": "2e94467c6b96",
    "refused_sends 1.1": "83c613f8bb0b",
    "discarded_sends 1.1": "0be4bd6e7574",
    "truncated_ranges 1.0": "34c143ef4599",
}
"""A digest of the columns that each version of a table has."""


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    return path_ledger(tmp_path)


def made_without_version(ledger: PathLedger, table: Table, schema: pa.Schema | None = None) -> None:
    """A table as releases made it that had neither a version nor comments on columns."""
    properties = {name: value for name, value in ledger.properties(table).items() if name != VERSION}
    DeltaTable.create(
        str(ledger.path(table)),
        schema=schema or table.arrow_schema,
        name=table.name,
        description=table.comment,
        configuration=cast(Any, properties),
    )


def version_of(ledger: PathLedger, table: Table) -> str | None:
    found: str | None = ledger.open(table).metadata().configuration.get(VERSION)
    return found


def comments(ledger: PathLedger, table: Table) -> dict[str, Any]:
    return {field.name: field.metadata.get("comment") for field in ledger.open(table).schema().fields}


def test_other_columns_are_another_version() -> None:
    """Fails when a column was changed: give the table the next minor version, and the digest here."""
    found = {
        f"{table.name} {table.version[0]}.{table.version[1]}": hashlib.sha256(table.ddl.encode()).hexdigest()[
            :12
        ]
        for table in TABLES
    }
    assert found == COLUMNS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_is_made_with_its_sentences_and_its_version(ledger: PathLedger, table: Table) -> None:
    ledger.create(table)
    assert version_of(ledger, table) == ".".join(map(str, table.version))
    assert comments(ledger, table) == {column.name: column.comment for column in table.columns}
    assert all(column.comment for column in table.columns)
    assert ledger.open(table).metadata().description == table.comment


def test_a_table_of_a_release_without_versions_gets_its_sentences_once(ledger: PathLedger) -> None:
    fields = [pa.field(column.name, column.type) for column in DATA_LOSSES.columns]
    fields[0] = fields[0].with_metadata({"comment": "an operator's own"})
    made_without_version(ledger, DATA_LOSSES, pa.schema(fields))
    ledger.fit(DATA_LOSSES)
    wanted = {column.name: column.comment for column in DATA_LOSSES.columns}
    assert comments(ledger, DATA_LOSSES) == wanted | {"consumer_group": "an operator's own"}
    assert version_of(ledger, DATA_LOSSES) == "1.0"
    version = ledger.open(DATA_LOSSES).version()
    ledger.fit(DATA_LOSSES)
    assert ledger.open(DATA_LOSSES).version() == version, "once"


def test_a_start_that_ended_between_the_two_begins_again(ledger: PathLedger) -> None:
    made_without_version(ledger, DATA_LOSSES)

    class Ends(PathLedger):
        def _set_properties(self, *given: Any) -> None:
            raise OSError("the process ended")

    with pytest.raises(OSError, match="ended"):
        Ends(ledger.directory).fit(DATA_LOSSES)
    assert version_of(ledger, DATA_LOSSES) is None
    ledger.fit(DATA_LOSSES)
    assert version_of(ledger, DATA_LOSSES) == "1.0"


def test_a_job_that_loses_a_commit_to_another_one_looks_again(ledger: PathLedger) -> None:
    made_without_version(ledger, DATA_LOSSES)

    class Late(PathLedger):
        def _set_properties(self, *given: Any) -> None:
            ledger.fit(DATA_LOSSES)
            raise RuntimeError("MetadataChangedException")

    Late(ledger.directory).fit(DATA_LOSSES)
    assert version_of(ledger, DATA_LOSSES) == "1.0"


def test_a_commit_that_deltalake_lost_is_looked_at_again(ledger: PathLedger) -> None:
    made_without_version(ledger, DATA_LOSSES)

    class Late(PathLedger):
        def _set_properties(self, properties: Any, table: Table, spark: Any) -> None:
            opened = self.open(table)
            ledger.fit(DATA_LOSSES)
            opened.alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    Late(ledger.directory).fit(DATA_LOSSES)
    assert version_of(ledger, DATA_LOSSES) == "1.0"


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (OSError(28, "No space left on device"), 1),
        (RuntimeError("a defect"), 1),
        (InvalidRequest("ARGUMENT_ILLEGAL", "refused"), 1),
        (RuntimeError("[DELTA_METADATA_CHANGED] MetadataChangedException: changed meanwhile"), 5),
        (RuntimeError("[FIELD_ALREADY_EXISTS] Cannot add column, because `b` already exists"), 5),
    ],
    ids=str,
)
def test_only_a_commit_that_lost_to_another_one_is_tried_again(
    ledger: PathLedger, failure: Exception, tries: int
) -> None:
    made_without_version(ledger, DATA_LOSSES)
    tried: list[Any] = []

    class Fails(PathLedger):
        def _set_properties(self, *given: Any) -> None:
            tried.append(given)
            raise failure

    with pytest.raises(type(failure)) as raised:
        Fails(ledger.directory).fit(DATA_LOSSES)
    assert (raised.value, len(tried)) == (failure, tries)


def test_a_new_column_is_a_minor_version_that_an_older_writer_survives(ledger: PathLedger) -> None:
    note = Column("note", pa.string(), "a later version's")
    later = replace(DATA_LOSSES, columns=(*DATA_LOSSES.columns, note), version=(1, 1))
    ledger.create(DATA_LOSSES)
    ledger.fit(later)
    assert version_of(ledger, DATA_LOSSES) == "1.1"
    assert comments(ledger, DATA_LOSSES)["note"] == "a later version's"
    noted = pa.Table.from_pylist([{"consumer_group": "g", "note": "kept"}], schema=later.arrow_schema)
    ledger.append_arrow(noted, later, app_id="later", version=0)

    version = ledger.open(DATA_LOSSES).version()
    ledger.fit(DATA_LOSSES)
    assert (version_of(ledger, DATA_LOSSES), ledger.open(DATA_LOSSES).version()) == ("1.1", version)
    plain = pa.Table.from_pylist([{"consumer_group": "h"}], schema=DATA_LOSSES.arrow_schema)
    assert ledger.append_arrow(plain, DATA_LOSSES, app_id="older", version=0)
    found = LedgerReader(ledger.directory).sql("SELECT consumer_group, note FROM data_losses ORDER BY 1")
    assert [tuple(row.values()) for row in found.to_pylist()] == [("g", "kept"), ("h", None)]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("2.0", "data_losses of .* has the schema version 2.0, and this version writes 1.0"),
        ("10.3", "schema version 10.3"),
        ("one", "lakemq.schema_version = 'one', which is no version"),
        ("1", "which is no version"),
        ("-1.0", "which is no version"),
    ],
)
def test_a_writer_ends_before_a_table_of_a_later_major_version(
    ledger: PathLedger, stored: str, said: str
) -> None:
    ledger.create(DATA_LOSSES)
    ledger.open(DATA_LOSSES).alter.set_table_properties({VERSION: stored}, raise_if_not_exists=False)
    version = ledger.open(DATA_LOSSES).version()
    with pytest.raises(InvalidRequest, match=said):
        ledger.fit(DATA_LOSSES)
    assert ledger.open(DATA_LOSSES).version() == version
    assert LedgerReader(ledger.directory).sql("SELECT * FROM data_losses").num_rows == 0, "readers read it"


@pytest.mark.parametrize(
    ("stored", "behind"), [(None, True), ("0.9", True), ("1.1", True), ("1.2", False), ("1.10", False)]
)
def test_versions_are_numbers(stored: str | None, behind: bool) -> None:
    properties = {} if stored is None else {VERSION: stored}
    assert is_behind(properties, replace(DATA_LOSSES, version=(1, 2)), "l") == behind


def test_a_catalogs_table_is_made_with_the_same() -> None:
    class Spark:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def sql(self, text: str) -> None:
            self.asked.append(text)

    spark = Spark()
    CatalogLedger("main.lmq").create(DATA_LOSSES, spark=cast(Any, spark))
    (made,) = spark.asked
    assert "from_offset BIGINT COMMENT 'first position lost'," in made
    assert f" COMMENT '{DATA_LOSSES.comment}' TBLPROPERTIES (" in made
    assert "'lakemq.schema_version' = '1.0'" in made


@pytest.mark.parametrize(("text", "literal"), [("the user's", r"'the user\'s'"), ("a\\b", r"'a\\b'")])
def test_a_literal_of_sparks_keeps_quotes_and_backslashes(text: str, literal: str) -> None:
    assert spark_text(text) == literal


def test_an_older_release_writes_a_table_that_has_a_version(ledger: PathLedger) -> None:
    """What such a release does: it sets a property without knowing ours, and appends."""
    ledger.create(DATA_LOSSES)
    ledger.open(DATA_LOSSES).alter.set_table_properties({"delta.checkpointInterval": "60"})
    row = pa.Table.from_pylist([{"consumer_group": "g"}], schema=DATA_LOSSES.arrow_schema)
    write_deltalake(ledger.open(DATA_LOSSES), row, mode="append")
    assert version_of(ledger, DATA_LOSSES) == "1.0"
