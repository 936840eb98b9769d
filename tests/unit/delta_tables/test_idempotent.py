"""An append of a version that is there adds nothing."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import NEVER, append_arrow_once, newest_batch
from tests.support.ledger_rows import START, append, delivery, path_ledger


def test_an_arrow_append_of_a_known_version_adds_nothing(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(CONSUMER_OFFSETS)
    progress = [QueueProgress("t", "b", 0, 0, 5, None)]
    table = rows(progress, consumer_group="g", subscription="*", query_id="q", batch_id=1, recorded_at=START)
    done = [
        append_arrow_once(table, ledger, CONSUMER_OFFSETS, app_id=app, version=version)
        for app, version in [("a", 1), ("a", 1), ("a", 0), ("b", 1), ("a", 2)]
    ]
    assert done == [True, False, False, True, True]
    assert DeltaTable(str(ledger.path(CONSUMER_OFFSETS))).to_pyarrow_table().num_rows == 3


def test_the_newest_batch_is_the_one_with_rows_of_that_query(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(DELIVERIES)

    def newest(query_id: str) -> int:
        # A ledger on a path is read without a session.
        return newest_batch(ledger, DELIVERIES, query_id=query_id, spark=None)  # type: ignore[arg-type]

    assert newest("q") == NEVER == -1
    rows_ = [delivery(at, query_id="q", batch_id=batch) for at, batch in [(0, 4), (1, 7), (2, 5)]]
    append(ledger, DELIVERIES, [*rows_, delivery(3, query_id="other", batch_id=9)])
    assert (newest("q"), newest("other"), newest("third")) == (7, 9, NEVER)
    append(ledger, DELIVERIES, [delivery(0, query_id="third", batch_id=0)])
    assert newest("third") == 0
