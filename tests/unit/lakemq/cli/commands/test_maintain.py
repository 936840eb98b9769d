"""``lakemq maintain``: what it does to a ledger is maintenance's; here is what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from lakemq.cli.app import main
from tests.support.ledger_rows import append, delivery, path_ledger, query


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path / "ledger")
    for offset in range(3):
        append(made, DELIVERIES, [delivery(offset)])
    return made


def test_small_files_become_one(ledger: PathLedger, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", "--ledger", str(ledger), "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["table"], report["files_removed"], report["files_added"]) == ("deliveries", 3, 1)
    assert len(ledger.open(DELIVERIES).file_uris()) == 1
    assert query(ledger, "SELECT count(*) AS n FROM deliveries") == [{"n": 3}]
    assert main(["maintain", "--ledger", str(ledger)]) == 0
    assert capsys.readouterr().out.startswith("table")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--keep-days", "0"], 2, "--keep-days"),
        (["--vacuum-hours", "1"], 1, "files are kept for 168 hours at least"),
        (["--ledger", "nowhere"], 1, "no ledger at"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert main(["maintain", "--ledger", str(ledger), *words]) == code
    assert said in (error := capsys.readouterr().err)
    assert "Traceback" not in error


def test_a_group_that_writes_the_ledger_is_not_disturbed(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    (lock,) = ledger.writer_locks([DELIVERIES])
    lock.acquire()
    try:
        assert main(["maintain", "--ledger", str(ledger)]) == 1
    finally:
        lock.release()
    assert "STORE_LOCKED" in capsys.readouterr().err
    assert len(ledger.open(DELIVERIES).file_uris()) == 3
