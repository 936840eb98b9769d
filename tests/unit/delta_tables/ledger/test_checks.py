"""What a table takes no row without: its checks, as Delta's constraints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake.exceptions import DeltaError

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.messages import MESSAGES
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table
from tests.support.ledger_rows import append, dead_letter, delivery, path_ledger, stored


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    return path_ledger(tmp_path)


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (DELIVERIES, delivery(0, attempt=0)),
        (DELIVERIES, delivery(0) | {"attempt": None}),
        (DELIVERIES, delivery(-1)),
        (DELIVERIES, delivery(0, queue_id=-1)),
        (DELIVERIES, delivery(0, verdict="ack")),
        (DELIVERIES, delivery(0) | {"verdict": None}),
        (DEAD_LETTERS, dead_letter(0, 1) | {"attempts": 0}),
        (DEAD_LETTERS, dead_letter(-1, 1)),
        (MESSAGES, stored(-1)),
    ],
)
def test_a_row_that_a_check_does_not_hold_for_is_refused(
    ledger: PathLedger, table: Table, row: dict[str, Any]
) -> None:
    ledger.create(table)
    with pytest.raises(DeltaError, match="1 rows failed validation"):
        append(ledger, table, [row])
    assert ledger.open(table).version() == 0


def test_each_kind_of_row_that_a_group_writes_is_taken(ledger: PathLedger) -> None:
    verdicts = ("ACK", "RETRY", "DEAD", "DROPPED", "PARKED")
    rows = [delivery(0, verdict=verdict) for verdict in verdicts]
    put_off = delivery(1, verdict="RETRY", started_at=None)
    append(
        ledger, DELIVERIES, [*rows, put_off, delivery(0) | {"queue_offset": 2**63 - 1, "attempt": 2**31 - 1}]
    )
    assert ledger.open(DELIVERIES).to_pyarrow_table().num_rows == 7


def test_checks_are_there_with_the_first_commit_and_ask_for_the_writers_that_hold_to_them(
    ledger: PathLedger,
) -> None:
    ledger.create(DELIVERIES, SKIPPED_MESSAGES)
    made = ledger.open(DELIVERIES)
    assert (made.version(), made.protocol().min_reader_version, made.protocol().min_writer_version) == (
        0,
        1,
        3,
    )
    found = made.metadata().configuration
    assert found["delta.constraints.position"] == "queue_id >= 0 AND queue_offset >= 0"
    assert found["delta.constraints.verdict"] == "verdict IN ('ACK', 'RETRY', 'DEAD', 'DROPPED', 'PARKED')"
    assert ledger.open(SKIPPED_MESSAGES).protocol().min_writer_version == 2


def test_a_table_that_is_there_already_is_given_none(ledger: PathLedger) -> None:
    """They would have all of its rows read."""
    ledger.create(replace(DELIVERIES, checks=(), version=(0, 9)))
    ledger.fit(DELIVERIES)
    assert not [name for name in ledger.open(DELIVERIES).metadata().configuration if "constraints" in name]


def test_maintenance_and_compaction_go_on_over_checks(ledger: PathLedger) -> None:
    for at in range(3):
        append(ledger, DELIVERIES, [delivery(at), delivery(at, 2)])
    made = ledger.open(DELIVERIES)
    assert made.delete("queue_offset = 0 AND attempt = 1")["num_deleted_rows"] == 1
    assert made.optimize.compact()["numFilesAdded"] == 1
    assert made.to_pyarrow_table().num_rows == 5


def test_a_catalogs_table_is_made_with_them() -> None:
    asked: list[str] = []

    class Spark:
        def sql(self, text: str) -> None:
            asked.append(text)

    CatalogLedger("main.lmq").create(DELIVERIES, spark=cast(Any, Spark()))
    there = r"'delta.constraints.verdict' = 'verdict IN (\'ACK\', \'RETRY\'," in asked[0]
    assert there, "pytest would compare the two texts for minutes"
