"""Numbers become a verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lakemq.quickstart.report import Report

GOOD = Report(
    posted=10,
    acknowledged=10,
    consumed=8,
    retried=4,
    dead_lettered=2,
    unfinished=0,
    gaps=0,
    duplicates=0,
    seconds=1.0,
    ingest_seconds=0.5,
    ingest_rate=20.0,
    consume_seconds=0.4,
    expected_dead_letters=2,
)


def test_report_without_a_fault_has_no_problems() -> None:
    assert GOOD.problems() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"acknowledged": 9},
        {"gaps": 1},
        {"duplicates": 1},
        {"unfinished": 1},
        {"dead_lettered": 3},
        {"posted": 0, "acknowledged": 0},
    ],
)
def test_each_fault_is_a_problem(fault: dict[str, int]) -> None:
    assert len(replace(GOOD, **fault).problems()) == 1


def test_report_file_says_the_numbers_and_the_problems(tmp_path: Path) -> None:
    replace(GOOD, gaps=1).write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["posted"] == 10
    assert len(written["problems"]) == 1
