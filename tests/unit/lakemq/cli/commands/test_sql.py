"""How `lakemq sql` prints: what a person sees is all, or says what it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from lakemq.cli import app
from lakemq.cli.commands import sql
from tests.support.ledger_rows import append, delivery, path_ledger

LONG = "x" * 61


def test_table_says_which_columns_are_cut_and_how_often() -> None:
    shown = sql.as_table(
        pa.table(
            {"n": [1, 2, 3], "body": [LONG, "short", LONG.encode().decode()], "reason": ["", LONG, None]}
        )
    )
    assert shown.splitlines()[-2:] == [
        "(3 rows)",
        "cut to 60 characters: body (2), reason (1); --format json or csv shows all",
    ]
    assert LONG not in shown


def test_table_that_shows_all_says_nothing_more() -> None:
    assert sql.as_table(pa.table({"body": ["x" * 60]})).splitlines()[-1] == "(1 row)"


def test_json_and_csv_show_all() -> None:
    result = pa.table({"body": [LONG]})
    assert LONG in sql.as_json(result)
    assert LONG in sql.as_csv(result)


def test_no_ledger_here_says_what_makes_one_and_where_the_quick_starts_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    complaint = "lakemq: ARGUMENT_ILLEGAL: no ledger at ledger: a group's first run makes it "
    assert app.main(["sql", "SELECT 1"]) == 1
    assert capsys.readouterr().err == f"{complaint}(lakemq consume --ledger ledger)\n"
    (tmp_path / ".quickstart/ledger").mkdir(parents=True)
    assert app.main(["sql", "SELECT 1"]) == 1
    said = capsys.readouterr().err
    assert (
        said
        == f"{complaint}(lakemq consume --ledger ledger); the quick start's is --ledger .quickstart/ledger\n"
    )
    assert app.main(["sql", "SELECT 1", "--ledger", ".quickstart/ledger"]) == 1
    assert "the quick start's" not in capsys.readouterr().err


def test_numbers_that_json_has_no_word_for_are_texts() -> None:
    result = pa.table({"n": [float("nan"), float("inf"), float("-inf"), 1.5]})
    assert json.loads(sql.as_json(result), parse_constant=pytest.fail) == [
        {"n": "NaN"},
        {"n": "Infinity"},
        {"n": "-Infinity"},
        {"n": 1.5},
    ]
    assert sql.as_csv(result).splitlines() == ["n", "NaN", "Infinity", "-Infinity", "1.5"]


def test_an_interval_is_text_as_iso_8601_has_it() -> None:
    hours = -90 * 60 * 10**9
    intervals = [(1, 2, 3_500_000_000), (0, 0, hours), (12, 0, 0), (0, -3, 0), (0, 0, 0), (0, 0, 1)]
    found = [pa.table({"i": pa.array([pa.MonthDayNano(list(each))])}) for each in intervals]
    written = [json.loads(sql.as_json(each))[0]["i"] for each in found]
    assert written == ["P1M2DT3.5S", "PT-5400S", "P12M", "P-3D", "PT0S", "PT0.000000001S"]
    assert sql.as_csv(found[1]) == "i\nPT-5400S"
    assert "P12M" in sql.as_table(found[2])


def test_an_error_of_the_engine_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append(path_ledger(tmp_path / "ledger"), DELIVERIES, [delivery(0)])
    (log,) = (tmp_path / "ledger/deliveries/_delta_log").glob("*0.json")
    log.write_text(log.read_text()[:60])
    assert app.main(["sql", "SELECT 1", "--ledger", str(tmp_path / "ledger")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lakemq: ")
    assert "\x1b" not in line
