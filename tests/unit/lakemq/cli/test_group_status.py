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
