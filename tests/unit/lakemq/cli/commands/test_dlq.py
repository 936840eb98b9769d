"""What `lakemq dlq` says: a card of a dead letter, and nothing done without --execute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from lakemq.cli.app import main
from tests.support.ledger_rows import append, delivery, path_ledger
from tests.unit.jobs.dlq.test_replay import letter


@pytest.fixture
def named(tmp_path: Path) -> list[str]:
    ledger = path_ledger(tmp_path)
    trace = "Traceback (most recent call last):\nValueError: broken\n"
    append(ledger, DEAD_LETTERS, [letter(0, attempts=2, error_trace=trace, body=b"the body"), letter(1)])
    append(ledger, DELIVERIES, [delivery(0, 1, "RETRY"), delivery(0, 2, "DEAD"), delivery(0, 3)])
    return ["--group", "g", "--ledger", str(tmp_path)]


def test_a_card_has_fields_attempts_traceback_and_body(
    named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "show", "M0", *named]) == 0
    shown = capsys.readouterr().out
    for part in ("message_id        M0", "RETRY", "DEAD", "ValueError: broken", "the body"):
        assert part in shown, shown
    assert main(["dlq", "show", "M0", *named, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [each["attempt"] for each in found["history"]] == [1, 2, 3], "the last is what a replay came to"


def test_show_asks_for_one_choice_and_says_when_nothing_fits(
    named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "show", *named]) == 2
    assert main(["dlq", "show", "M0", "--where", "attempts = 3", *named]) == 2
    assert main(["dlq", "show", "it's", *named]) == 1
    assert "no dead letter of group g fits message_id = 'it''s'" in capsys.readouterr().err


def test_a_discard_is_a_preview_until_it_is_to_be_done(
    named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dlq", "discard", *named, "--where", "queue_offset = 0", "--reason", "known"]
    assert main(command) == 0
    assert "1 dead letters of group g would be discarded; --execute does it" in capsys.readouterr().out
    assert main([*command, "--execute"]) == 0
    assert "1 dead letters of group g are discarded" in capsys.readouterr().out
    assert main(["dlq", "list", *named]) == 0
    assert "M0" not in capsys.readouterr().out
    assert main(["dlq", "list", "--discarded", *named]) == 0
    assert "M0" in capsys.readouterr().out
    assert main(["dlq", "show", "M0", *named]) == 0
    assert "discard_reason    known" in capsys.readouterr().out


VERBS = [
    ["list"],
    ["show", "M0"],
    ["export", "--to", "letters.ndjson"],
    ["discard", "--reason", "known"],
    ["discard", "--reason", "known", "--execute"],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb))
def test_a_group_that_is_not_there_is_refused(
    named: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: list[str],
) -> None:
    append(path_ledger(tmp_path), DEAD_LETTERS, [letter(0, "billing")])
    monkeypatch.chdir(tmp_path)
    assert main(["dlq", *verb, *named, "--group", "biling"]) == 1
    said = capsys.readouterr()
    assert ("there is no group biling: did you mean billing?" in said.err, said.out) == (True, "")
    assert not Path("letters.ndjson").exists()


def test_a_group_without_dead_letters_has_an_empty_list(
    named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(path_ledger(tmp_path), DELIVERIES, [delivery(0, consumer_group="healthy")])
    assert main(["dlq", "list", *named, "--group", "healthy", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_discard_without_a_reason_is_no_preview_either(
    named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--execute"]):
        assert main(["dlq", "discard", *named, "--reason", " ", *more]) == 1
        said = capsys.readouterr()
        assert ("--reason says why" in said.err, said.out) == (True, "")
