"""Before a job starts Spark: it is the only writer of its tables, or it takes none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.maintenance import maintain
from jobs.consume import WRITTEN, sole_writer
from store_native.errors import Unavailable
from tests.support.ledger_rows import append, delivery, path_ledger


def test_a_job_that_finds_one_table_taken_takes_no_other(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    maintenance = WriterLock(tmp_path, WRITTEN[-1].name)
    maintenance.acquire()
    with (
        pytest.raises(Unavailable, match=f"STORE_LOCKED.*writes {WRITTEN[-1].name}"),
        sole_writer(ledger, WRITTEN),
    ):
        raise AssertionError("it started beside another writer")
    maintenance.release()
    with sole_writer(ledger, WRITTEN) as locks:
        assert len(locks) == len(WRITTEN)


def test_maintenance_beside_a_job_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    for offset in range(3):
        append(ledger, DELIVERIES, [delivery(offset)])
    version = ledger.open(DELIVERIES).version()
    with sole_writer(ledger, WRITTEN), pytest.raises(Unavailable, match=r"STORE_LOCKED.*writes deliveries"):
        maintain(ledger, keep_days=1)
    assert ledger.open(DELIVERIES).version() == version
    reports = {report.table: report for report in maintain(ledger)}
    assert reports[DELIVERIES.name].files_removed == 3
