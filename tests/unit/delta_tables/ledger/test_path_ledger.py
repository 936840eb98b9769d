"""A ledger in a directory: where its tables are, how they are made, and what an append adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import ArrayType, MapType, PrimitiveType
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.data_losses import DATA_LOSSES
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import path_ledger as module
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.stored_columns import StoredColumn
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from delta_tables.table import Column, Table
from store_native.errors import InvalidRequest, Unavailable
from tests.support.ledger_rows import report

EVENTS = Table(
    "events",
    (
        Column("id", pa.int64(), "which"),
        Column("Name", pa.string(), "its name"),
        Column("tags", pa.list_(pa.string()), "words"),
    ),
    ("id",),
    "One event a row.",
    ("id", "Name"),
)


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    return PathLedger(tmp_path / "ledger")


class Asked:
    """What was asked of a reader or a writer of Spark's, one call after another."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any) -> Asked:
            self.calls.append((name, *args))
            return self

        return called


def test_everything_of_a_ledger_is_in_its_directory(ledger: PathLedger) -> None:
    assert str(ledger) == str(ledger.directory)
    assert ledger.checkpoints == ledger.directory / "_checkpoints"
    assert ledger.path(EVENTS) == ledger.directory / "events"
    assert ledger.qualified(EVENTS) == f"delta.`{ledger.directory}/events`"


def test_sparks_readers_and_writers_are_sent_to_the_tables_directory(ledger: PathLedger) -> None:
    where = str(ledger.directory / "events")
    read, written, streamed = Asked(), Asked(), Asked()
    assert cast(Any, ledger.read(cast(Any, SimpleNamespace(read=read)), EVENTS)) is read
    assert read.calls == [("format", "delta"), ("load", where)]
    ledger.append(cast(Any, written), EVENTS)
    assert written.calls == [("save", where)]
    assert cast(Any, ledger._stream_from(cast(Any, streamed), EVENTS)) is streamed  # noqa: SLF001
    assert cast(Any, ledger._stream_to(cast(Any, streamed), EVENTS)) is streamed  # noqa: SLF001
    assert streamed.calls == [("format", "delta"), ("load", where), ("start", where)]


def test_a_table_is_made_with_its_name_its_sentence_and_its_properties(ledger: PathLedger) -> None:
    assert not ledger.exists(EVENTS)
    ledger.create(EVENTS)
    assert ledger.exists(EVENTS)
    made = DeltaTable(str(ledger.directory / "events"))
    assert [(field.name, field.metadata) for field in made.schema().fields] == [
        ("id", {"comment": "which"}),
        ("Name", {"comment": "its name"}),
        ("tags", {"comment": "words"}),
    ]
    described = made.metadata()
    assert (described.name, described.description) == ("events", "One event a row.")
    assert described.configuration == {
        "delta.checkpointInterval": "50",
        "delta.logRetentionDuration": "interval 31 days",
        "delta.deletedFileRetentionDuration": "interval 1 days",
        "delta.dataSkippingStatsColumns": "id,Name",
        "lakemq.schema_version": "1.0",
    }


def test_only_what_is_missing_is_made(ledger: PathLedger) -> None:
    class Behind(PathLedger):
        """Another process makes each table a moment after this one has looked."""

        def exists(self, table: Table, spark: SparkSession | None = None) -> bool:
            return False

    ledger.create(EVENTS)
    ledger.append_arrow(rows(1), EVENTS, app_id="a", version=0)
    ledger.create(EVENTS, DATA_LOSSES)
    Behind(ledger.directory).create(EVENTS, DATA_LOSSES)
    assert ledger.open(EVENTS).version() == 1
    assert ledger.version(cast(Any, None), EVENTS) == 1
    assert ledger.version(cast(Any, None), DATA_LOSSES) == 0


def test_a_job_gets_the_tables_it_writes_and_the_columns_they_lack(ledger: PathLedger) -> None:
    older = Table("events", EVENTS.columns[:1], ("id",), "One event a row.", ("id",))
    ledger.create(older)
    ledger.create_for([EVENTS, CONSUMER_OFFSETS], [DELIVERIES], cast(Any, None))
    assert [field.name for field in ledger.open(EVENTS).schema().fields] == ["id", "Name", "tags"]
    assert ledger.exists(CONSUMER_OFFSETS)
    assert not ledger.exists(DELIVERIES), "a query of the views makes it"
    other = Table("events", (Column("id", pa.string(), "which"),), ("id",), "", ("id",))
    with pytest.raises(InvalidRequest, match="id is bigint there, string here"):
        ledger.create_for([other], [], cast(Any, None))


def rows(*ids: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())} | columns)


def test_an_append_is_a_transaction_of_its_application(ledger: PathLedger) -> None:
    ledger.create(EVENTS)
    done = [
        ledger.append_arrow(rows(at), EVENTS, app_id=app, version=version)
        for at, (app, version) in enumerate([("a", 5), ("a", 5), ("a", 4), ("b", 0), ("a", 6), ("b", 0)])
    ]
    assert done == [True, False, False, True, True, False]
    table = ledger.open(EVENTS)
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [0, 3, 4]
    assert (table.transaction_version("a"), table.transaction_version("b")) == (6, 0)


def test_columns_are_put_where_the_table_has_them_whatever_their_case(ledger: PathLedger) -> None:
    ledger.create(EVENTS)
    given = pa.table({"NAME": ["n"], "ID": pa.array([7], pa.int64())})
    assert ledger.append_arrow(given, EVENTS, app_id="a", version=0)
    assert ledger.open(EVENTS).to_pyarrow_table().to_pylist() == [{"id": 7, "Name": "n", "tags": None}]


def test_a_column_the_table_lacks_is_named_and_nothing_is_appended(ledger: PathLedger) -> None:
    ledger.create(EVENTS)
    with pytest.raises(AssertionError, match=r"fitted to \['note', 'other'\]"):
        ledger.append_arrow(rows(1, Other=["x"], note=["y"]), EVENTS, app_id="a", version=0)
    assert ledger.open(EVENTS).version() == 0


def test_each_table_has_a_lock_of_its_own(ledger: PathLedger) -> None:
    first, second = ledger.writer_locks([EVENTS, DATA_LOSSES])
    first.acquire()
    second.acquire()
    assert {path.name for path in (ledger.directory / "_locks").iterdir()} == {
        "events.lock",
        "data_losses.lock",
    }
    with pytest.raises(Unavailable, match="writes events of this ledger"):
        ledger.writer_locks([EVENTS])[0].acquire()
    first.release()
    second.release()


def test_stored_columns_are_in_sparks_words_and_say_what_must_not_be_null(ledger: PathLedger) -> None:
    kinds = [
        ("i", pa.int32(), "int"),
        ("l", pa.int64(), "bigint"),
        ("s", pa.string(), "string"),
        ("b", pa.binary(), "binary"),
        ("t", pa.timestamp("us", "UTC"), "timestamp"),
        ("a", pa.list_(pa.int32()), "array<int>"),
        ("m", pa.map_(pa.string(), pa.list_(pa.int64())), "map<string,array<bigint>>"),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]), "struct<x:int,y:array<string>>"),
    ]
    fields = [pa.field(name, kind, nullable=name != "l") for name, kind, _ in kinds]
    write_deltalake(str(ledger.path(EVENTS)), pa.schema(fields).empty_table())
    stored = ledger._stored_columns(EVENTS, None)  # noqa: SLF001
    assert stored == [StoredColumn(name, ddl, name != "l") for name, _, ddl in kinds]


def test_a_type_no_table_of_ours_has_is_written_as_its_own_words() -> None:
    assert module._as_ddl(7) == "7"  # noqa: SLF001
    kept = MapType(ArrayType(PrimitiveType("short")), PrimitiveType("double"))
    assert module._as_ddl(kept) == "map<array<short>,double>"  # noqa: SLF001


def test_a_table_of_an_earlier_version_gets_its_retention_and_keeps_what_an_operator_set(
    ledger: PathLedger,
) -> None:
    retention, files = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"

    def made_with(table: Table, properties: dict[str, str]) -> dict[str, str]:
        DeltaTable.create(
            str(ledger.directory / table.name), schema=table.arrow_schema, configuration=cast(Any, properties)
        )
        ledger.fit(table)
        version = ledger.open(table).version()
        ledger.fit(table)
        assert ledger.open(table).version() == version, "once"
        found = dict(ledger.open(table).metadata().configuration)
        assert found.pop("lakemq.schema_version") == ".".join(map(str, table.version))
        return found

    week = {retention: "interval 7 days", "delta.checkpointInterval": "50"}
    month = {retention: "interval 31 days", files: "interval 1 days"}
    assert made_with(DELIVERIES, week) == week | month
    before = {retention: "interval 31 days", files: "interval 31 days"}
    assert made_with(DEAD_LETTERS, before) == month
    assert made_with(MESSAGES, before) == month | {"delta.autoOptimize.autoCompact": "true"}
    assert made_with(CONSUMER_OFFSETS, before) == dict.fromkeys(before, "interval 3 hours")
    own = {retention: "interval 90 days", files: "interval 2 weeks"}
    assert made_with(DATA_LOSSES, own) == own


def test_a_table_of_an_earlier_version_gets_statistics_on_what_queries_filter_by(ledger: PathLedger) -> None:
    skipping = "delta.dataSkippingStatsColumns"
    before = "topic,queue_id,next_offset,recorded_at"
    now = ",".join(CONSUMER_OFFSETS.skipping)

    def fitted(name: str, stored: str) -> str:
        table = replace(CONSUMER_OFFSETS, name=name)
        DeltaTable.create(
            str(ledger.path(table)), schema=table.arrow_schema, configuration=cast(Any, {skipping: stored})
        )
        ledger.fit(table)
        return str(ledger.open(table).metadata().configuration[skipping])

    assert set(before.split(",")) < set(now.split(","))
    assert fitted("earlier", before) == now
    assert fitted("later", f"{now},broker_name") == f"{now},broker_name"
    assert fitted("of_an_operator", "topic,broker_name") == "topic,broker_name"
    assert fitted("spaced", "`topic`, queue_id") == now


def test_the_reports_of_other_groups_are_in_files_that_are_not_opened(ledger: PathLedger) -> None:
    report(ledger, 0, 5, group="other", batch_id=7)
    for file in ledger.path(CONSUMER_OFFSETS).glob("*.parquet"):
        file.unlink()
    report(ledger, 0, 3)
    reached = "SELECT reached_offset FROM group_progress WHERE consumer_group = 'g'"
    assert LedgerReader(ledger.directory).sql(reached).to_pylist() == [{"reached_offset": 3}]


@dataclass(frozen=True)
class Crossed(PathLedger):
    """A ledger of which something happens behind its first look, or behind its first commit."""

    behind_look: list[Callable[[], object]] = field(default_factory=list)
    behind_commit: list[Callable[[], object]] = field(default_factory=list)

    def open(self, table: Table) -> DeltaTable:
        """As any ledger."""
        delta = super().open(table)
        if self.behind_look:
            self.behind_look.pop()()
        return delta

    def append_arrow(self, rows: pa.Table, table: Table, *, app_id: str, version: int) -> bool:
        """As any ledger."""
        done = super().append_arrow(rows, table, app_id=app_id, version=version)
        if self.behind_commit:
            self.behind_commit.pop()()
        return done


def log_of(ledger: PathLedger) -> list[Path]:
    return sorted((ledger.path(DELIVERIES) / "_delta_log").glob("*.json"))


def noted(ledger: PathLedger) -> int | None:
    return ledger.open(DELIVERIES).transaction_version("lakemq/g")


def test_a_version_is_noted_once_without_rows(tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path)
    ledger.create(DELIVERIES)
    given = [ledger.note_version(DELIVERIES, app_id="lakemq/g", version=it) for it in (5, 5, 4, 6)]
    assert given == [True, False, False, True]
    assert noted(ledger) == 6
    assert len(log_of(ledger)) == 3
    assert not any('"add"' in file.read_text() for file in log_of(ledger))


def test_a_newer_version_that_came_behind_the_look_is_not_overruled(tmp_path: Path) -> None:
    other = PathLedger(tmp_path)
    other.create(DELIVERIES)
    ledger = Crossed(tmp_path)
    ledger.behind_look.append(lambda: other.note_version(DELIVERIES, app_id="lakemq/g", version=9))
    assert not ledger.note_version(DELIVERIES, app_id="lakemq/g", version=5)
    assert noted(other) == 9


def test_an_older_version_that_came_behind_the_look_is_overruled(tmp_path: Path) -> None:
    other = PathLedger(tmp_path)
    other.create(DELIVERIES)
    ledger = Crossed(tmp_path)
    ledger.behind_look.append(lambda: other.note_version(DELIVERIES, app_id="lakemq/g", version=3))
    assert ledger.note_version(DELIVERIES, app_id="lakemq/g", version=5)
    assert noted(other) == 5


def test_a_commit_that_fails_each_time_is_said(tmp_path: Path) -> None:
    other = PathLedger(tmp_path)
    other.create(DELIVERIES)
    ledger = Crossed(tmp_path)
    versions = iter(range(1, 10))
    ledger.behind_look.extend(
        [lambda: other.note_version(DELIVERIES, app_id="lakemq/g", version=next(versions))] * 5
    )
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        ledger.note_version(DELIVERIES, app_id="lakemq/g", version=50)


def test_another_group_s_version_that_came_behind_the_look_is_no_conflict(tmp_path: Path) -> None:
    other = PathLedger(tmp_path)
    other.create(DELIVERIES)
    ledger = Crossed(tmp_path)
    ledger.behind_look.append(lambda: other.note_version(DELIVERIES, app_id="lakemq/h", version=9))
    assert ledger.note_version(DELIVERIES, app_id="lakemq/g", version=5)
    assert noted(other) == 5


def test_a_version_that_spark_wrote_over_is_noted_again(tmp_path: Path) -> None:
    """Its log store on a path looks whether the version is there, then renames its file to it."""
    ledger = Crossed(tmp_path)
    ledger.create(DELIVERIES)
    theirs = json.dumps({"commitInfo": {"operation": "WRITE", "timestamp": 0}})
    ledger.behind_commit.append(lambda: log_of(ledger)[-1].write_text(theirs))
    assert ledger.note_version(DELIVERIES, app_id="lakemq/g", version=5)
    assert noted(ledger) == 5
    assert log_of(ledger)[-2].read_text() == theirs
