"""What a group has handled from a position on, through deltalake."""

from __future__ import annotations

from pathlib import Path

from delta_tables.deliveries import DELIVERIES
from delta_tables.handled_behind import HandledBehind, handled_behind
from delta_tables.ledger_reader import LedgerReader
from tests.support.ledger_rows import append, delivery, path_ledger, report


def test_messages_count_once_by_their_original_position_and_what_is_ahead_is_unread(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(n) for n in (0, 1, 4)])
    append(ledger, DELIVERIES, [delivery(2, verdict="RETRY"), delivery(2, 2, source_queue_offset=0)])
    append(ledger, DELIVERIES, [delivery(3, verdict="RETRY"), delivery(3, 2, "DEAD", source_queue_offset=1)])
    append(ledger, DELIVERIES, [delivery(5, verdict="PARKED"), delivery(6, consumer_group="other")])
    append(ledger, DELIVERIES, [delivery(9, queue_id=1), delivery(9, topic="paid")])
    report(ledger, 0, 7)
    asked = {("broker-a", 0): 1, ("broker-a", 1): 12, ("broker-a", 2): 3}
    found = handled_behind(LedgerReader(tmp_path).snapshot(), "g", "orders", asked)
    assert found == {
        ("broker-a", 0): HandledBehind(7, handled=4, acknowledged=3, given_up=1),
        ("broker-a", 1): HandledBehind(10, unread=2),
        ("broker-a", 2): HandledBehind(None),
    }
    assert handled_behind(LedgerReader(tmp_path).snapshot(), "g", "orders", {}) == {}
