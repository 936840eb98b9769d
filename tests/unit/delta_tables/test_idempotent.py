"""An append of a version that is there adds nothing."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.idempotent import append_arrow_once
from tests.support.ledger_rows import START, path_ledger


def test_an_arrow_append_of_a_known_version_adds_nothing(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(CONSUMER_OFFSETS)
    progress = [QueueProgress("t", "b", 0, 0, 5, None), QueueProgress("t", "b", 1, 5, 5, 9)]
    table = rows(progress, consumer_group="g", subscription="*", query_id="q", batch_id=1, recorded_at=START)
    assert table.num_rows == 1, "a queue that did not move has no row"
    done = [
        append_arrow_once(table, ledger, CONSUMER_OFFSETS, app_id=app, version=version)
        for app, version in [("a", 1), ("a", 1), ("a", 0), ("b", 1), ("a", 2)]
    ]
    assert done == [True, False, False, True, True]
    assert DeltaTable(str(ledger.path(CONSUMER_OFFSETS))).to_pyarrow_table().num_rows == 3
