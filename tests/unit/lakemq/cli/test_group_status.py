"""What a person reads of a group's status."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from delta_tables.deliveries import DELIVERIES
from delta_tables.group_status import ledger_status
from delta_tables.ledger_reader import LedgerReader
from lakemq.cli import group_status
from tests.support.ledger_rows import START, append, delivery, path_ledger


def test_what_is_given_up_and_no_dead_letter_yet_is_said(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(0)])

    def shown() -> str:
        status = ledger_status(LedgerReader(ledger.directory), "g", START + timedelta(hours=1))
        return group_status.as_text("g", {"lag": 0, "lag_s": 0.0}, status)

    assert "given up" not in shown()
    append(ledger, DELIVERIES, [delivery(1, verdict="DEAD"), delivery(2, verdict="DEAD")])
    (line,) = (line for line in shown().splitlines() if line.startswith("given up"))
    assert "2 that are no dead letters yet, the first since 2026-11-21" in line


def test_rows_that_wait_for_a_table_are_counted_beside_messages(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    kept = [{"table_name": "t", "row_json": "{}"}] * 2
    append(ledger, DELIVERIES, [delivery(0, sends=1, writes=2, table_rows=kept), delivery(1)])
    status = ledger_status(LedgerReader(ledger.directory), "g", START + timedelta(hours=1))
    assert (status.pending_sends, status.pending_rows) == (1, 2)
    shown = group_status.as_text("g", {"lag": 0, "lag_s": 0.0}, status)
    assert "1 messages wait to be sent, 2 rows to be written, the first since 2026-11-21" in shown
