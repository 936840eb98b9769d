"""The quick start's own arithmetic: rows to messages, numbers to a verdict, the directory it may empty."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemq.quickstart import flights, handlers, run
from lakemq.quickstart.consumer import Consumption
from lakemq.quickstart.report import Report
from lakemq.quickstart.sql_queries import literal
from lakemq.terminal.failure import CommandFailed

CSV = """\
year,dep_time,carrier,flight,tailnum,time_hour
2013,517,UA,1545,N14228,2013-01-01T10:00:00Z
2013,NA,EV,4308,NA,2013-01-01T21:00:00Z
"""
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


def archive() -> io.BytesIO:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("flights.csv", CSV)
    packed.seek(0)
    return packed


def test_rows_have_numbers_and_nothing_for_na() -> None:
    departed, cancelled = flights.rows(archive())
    assert departed["dep_time"] == 517
    assert departed["carrier"] == "UA"
    assert cancelled["dep_time"] is None
    assert cancelled["tailnum"] is None


def test_flight_is_found_by_carrier_and_number_and_filtered_by_carrier() -> None:
    message = flights.message_of(next(flights.rows(archive()))).to_json()
    assert message["keys"] == ["UA1545"]
    assert message["tags"] == "UA"
    assert message["body_json"]["dep_time"] == 517


def test_handler_fails_exactly_where_the_flight_never_departed() -> None:
    bodies = [json.dumps(row).encode() for row in flights.rows(archive())]
    verdicts = handlers.arrived(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}))
    assert [verdict and verdict.kind for verdict in verdicts] == [None, "RETRY"]


def test_handler_takes_a_batch_in_which_nothing_departed_and_an_empty_one() -> None:
    nothing = pa.array([b'{"dep_time":null}'] * 3, pa.binary())
    assert [v and v.kind for v in handlers.arrived(pa.RecordBatch.from_pydict({"body": nothing}))] == [
        "RETRY"
    ] * 3
    assert handlers.arrived(pa.RecordBatch.from_pydict({"body": pa.array([], pa.binary())})) == []


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


def test_directory_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(CommandFailed, match="no quick start made it"):
        run.empty_home(tmp_path)
    assert (tmp_path / "store").exists()


def test_directory_of_an_earlier_run_is_emptied_but_for_its_input(tmp_path: Path) -> None:
    home = run.empty_home(tmp_path / "q")
    for name in ("store", "ledger", "checkpoint", "input"):
        (home / name).mkdir()
    run.empty_home(home)
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"input"}


def test_sql_literal_cannot_be_left_early() -> None:
    assert literal("it's; --") == "'it''s; --'"


def test_the_group_is_told_to_begin_with_what_was_posted_before_it(tmp_path: Path) -> None:
    command = Consumption("http://127.0.0.1:1", "t", "g", "m:f", tmp_path, tmp_path, tmp_path).command()
    assert command[command.index("--from") + 1] == "earliest"
