"""An append through Spark: what Delta's answers mean, one scripted answer after another.

Contract: it says True only when Delta noted a commit for this append; a version the table knows is left out
and said to be; a conflict that passes is tried again, the frame evaluated anew, unless evaluating it has
effects; any other error is the caller's. That Delta answers so is in tests/integration/test_ledger_spark.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.idempotent import append_arrow_once, append_once
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table

_NOTED = "spark.databricks.delta.lastCommitVersionInSession"
PASSING = [
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
]


class Session:
    """A session's configuration, as far as it is asked for."""

    def __init__(self) -> None:
        self.conf = self
        self.values = {_NOTED: "41"}  # of another table's commit

    def unset(self, name: str) -> None:
        self.values.pop(name, None)

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)


class Rows:
    """A frame: it is its own writer, and notes its options."""

    def __init__(self) -> None:
        self.sparkSession = Session()
        self.options: list[tuple[str, ...]] = []

    @property
    def write(self) -> Rows:
        self.options = []
        return self

    def format(self, name: str) -> Rows:
        self.options.append(("format", name))
        return self

    def mode(self, name: str) -> Rows:
        self.options.append(("mode", name))
        return self

    def option(self, name: str, value: str) -> Rows:
        assert isinstance(value, str)
        self.options.append((name, value))
        return self


@dataclass(frozen=True)
class Delta(PathLedger):
    """A ledger whose appends end as the test says: a commit's number, None for one left out, or an error."""

    ends: list[int | str | None] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def append(self, writer: Any, table: Table) -> None:
        self.tables.append(table)
        end = self.ends.pop(0)
        if isinstance(end, str):
            raise RuntimeError(f"[{end}] from the JVM")
        if end is not None:
            writer.sparkSession.values[_NOTED] = str(end)


def append(*ends: int | str | None, has_effects: bool = False) -> tuple[bool, Rows, Delta]:
    rows, delta = Rows(), Delta(Path("/ledger"), list(ends))
    done = append_once(
        cast(Any, rows), delta, CONSUMER_OFFSETS, app_id="group", version=7, has_effects=has_effects
    )
    return done, rows, delta


@pytest.mark.parametrize("has_effects", [False, True])
def test_a_commit_that_is_noted_is_an_append_with_its_application_and_version(has_effects: bool) -> None:
    done, rows, delta = append(0, has_effects=has_effects)
    assert done is True
    assert delta.tables == [CONSUMER_OFFSETS]
    assert sorted(rows.options) == [
        ("format", "delta"), ("mode", "append"), ("txnAppId", "group"), ("txnVersion", "7"),
    ]  # fmt: skip


def test_an_append_left_out_is_said_to_be_whatever_was_noted_before_it() -> None:
    assert append(None)[0] is False


def test_an_append_that_another_one_overtook_is_left_out_at_once() -> None:
    done, _, delta = append("ConcurrentTransactionException")
    assert done is False
    assert len(delta.tables) == 1


@pytest.mark.parametrize("conflict", PASSING)
def test_a_conflict_that_passes_is_tried_again_five_times_in_all(conflict: str) -> None:
    done, rows, delta = append(*[conflict] * 4, 12)
    assert (done, len(delta.tables), len(rows.options)) == (True, 5, 4)
    assert append(conflict, None)[0] is False
    for_ever = Delta(Path("/ledger"), [conflict] * 6)
    with pytest.raises(RuntimeError, match=conflict):
        append_once(cast(Any, Rows()), for_ever, CONSUMER_OFFSETS, app_id="group", version=7)
    assert len(for_ever.tables) == 5


@pytest.mark.parametrize("conflict", PASSING)
def test_a_frame_with_effects_is_evaluated_once(conflict: str) -> None:
    delta = Delta(Path("/ledger"), [conflict, 12])
    with pytest.raises(RuntimeError, match=conflict):
        append_once(cast(Any, Rows()), delta, CONSUMER_OFFSETS, app_id="g", version=1, has_effects=True)
    assert delta.ends == [12]


def test_any_other_error_is_the_callers_at_once() -> None:
    delta = Delta(Path("/ledger"), ["OutOfMemoryError", 12])
    with pytest.raises(RuntimeError, match="OutOfMemoryError"):
        append_once(cast(Any, Rows()), delta, CONSUMER_OFFSETS, app_id="g", version=1)
    assert delta.ends == [12]


def test_an_arrow_append_to_a_catalog_goes_through_its_session() -> None:
    class Catalog(CatalogLedger):
        def append(self, writer: Any, table: Table) -> None:
            assert table is CONSUMER_OFFSETS
            options.extend(writer.options)
            writer.sparkSession.values[_NOTED] = "3"

    class Spark:
        def createDataFrame(self, table: object) -> Rows:
            assert table is arrow
            return Rows()

    options: list[tuple[str, ...]] = []
    arrow, catalog = cast(Any, object()), Catalog("main.lmq")
    done = append_arrow_once(
        arrow, catalog, CONSUMER_OFFSETS, app_id="group", version=3, spark=cast(Any, Spark())
    )
    assert done is True
    assert {("txnAppId", "group"), ("txnVersion", "3")} <= set(options)
    with pytest.raises(AssertionError, match="through Spark"):
        append_arrow_once(arrow, catalog, CONSUMER_OFFSETS, app_id="group", version=3)
