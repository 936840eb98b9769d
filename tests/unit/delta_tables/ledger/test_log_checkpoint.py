"""When the log of a table gets a checkpoint behind a commit of ours, and what a failure of that costs."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.file_append import commit_files
from delta_tables.ledger.log_checkpoint import checkpoint_if_due
from delta_tables.ledger.path_ledger import PathLedger


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = PathLedger(tmp_path / "ledger")
    made.create(DELIVERIES)
    return made


def every(ledger: PathLedger, versions: str, **more: str) -> None:
    properties = {"delta.checkpointInterval": versions, **more}
    ledger.open(DELIVERIES).alter.set_table_properties(properties, raise_if_not_exists=False)


def made(ledger: PathLedger) -> list[int]:
    log = ledger.path(DELIVERIES) / "_delta_log"
    return sorted(int(path.name.split(".")[0]) for path in log.glob("*.checkpoint.parquet"))


def test_one_is_made_of_each_so_many_versions_and_read_by_who_opens_the_table(ledger: PathLedger) -> None:
    every(ledger, "4")
    for version in range(2, 12):
        assert ledger.note_version(DELIVERIES, app_id="g", version=version)
    assert made(ledger) == [3, 7, 11]
    log = ledger.path(DELIVERIES) / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 11
    for version in range(11):
        (log / f"{version:020}.json").unlink()
    assert ledger.open(DELIVERIES).transaction_version("g") == 11


@pytest.mark.parametrize("noted", [None, "", "{}", "[1]", '{"version": "x"}'])
def test_what_is_noted_of_the_last_one_may_be_gone_or_broken(ledger: PathLedger, noted: str | None) -> None:
    every(ledger, "3")
    commit_files(ledger.open(DELIVERIES), [], "g", 1)
    file = ledger.path(DELIVERIES) / "_delta_log" / "_last_checkpoint"
    if noted is not None:
        file.write_text(noted)
    assert checkpoint_if_due(ledger.open(DELIVERIES), ledger.path(DELIVERIES))
    assert json.loads(file.read_text())["version"] == 2
    assert not checkpoint_if_due(ledger.open(DELIVERIES), ledger.path(DELIVERIES))


@pytest.mark.parametrize("deleted", [True, False])
def test_an_old_log_is_deleted_behind_one_unless_the_table_says_that_nobody_does(
    ledger: PathLedger, deleted: bool
) -> None:
    cleanup = {"delta.enableExpiredLogCleanup": str(deleted).lower()}
    every(ledger, "3", **{"delta.logRetentionDuration": "interval 1 days", **cleanup})
    commit_files(ledger.open(DELIVERIES), [], "g", 1)
    log = ledger.path(DELIVERIES) / "_delta_log"
    for path in log.glob("*.json"):
        os.utime(path, (0, 0))
    assert checkpoint_if_due(ledger.open(DELIVERIES), ledger.path(DELIVERIES))
    left = sorted(int(path.stem) for path in log.glob("*.json"))
    assert (left == [0, 1, 2]) is not deleted, left
    assert ledger.open(DELIVERIES).transaction_version("g") == 1


@pytest.mark.parametrize("broken", ["directory", "interval"])
def test_one_that_fails_fails_no_append(
    ledger: PathLedger, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    every(ledger, "1" if broken == "directory" else "soon")
    if broken == "directory":
        (ledger.path(DELIVERIES) / "_delta_log" / f"{2:020}.checkpoint.parquet").mkdir()
    with caplog.at_level(logging.WARNING):
        assert ledger.note_version(DELIVERIES, app_id="g", version=1)
    assert ledger.open(DELIVERIES).transaction_version("g") == 1
    (record,) = caplog.records
    assert (
        f"deliveries of {ledger.directory} were not put together, or its log got no checkpoint"
        in record.message
    )
    assert "\n" not in record.message
    assert "\x1b" not in record.message
