"""Commands that documents and help texts show are commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lakemq.cli import app
from lakemq.cli.cluster_members import COLUMNS
from lakemq.cli.commands.ha import SLAVE_COLUMNS

ROOT = Path(__file__).resolve().parents[4]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENDS = {"|", "&", "&&", ";", "||", ">", "2>"}


def commands_in(text: str) -> list[list[str]]:
    """Returns the words of each lakemq command in lines of a shell."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # the inside of a document that a line feeds to a command
            continue
        for at, word in enumerate(words):
            if word == "lakemq" and (at == 0 or words[at - 1] in {*ENDS, "$"}):
                rest = words[at + 1 :]
                end = next((n for n, other in enumerate(rest) if other in ENDS), len(rest))
                found.append(rest[:end])
    return found


def documented() -> list[tuple[str, list[str]]]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            found += [(document.name, command) for command in commands_in(block)]
    return found


@pytest.mark.parametrize(
    ("document", "command"),
    documented(),
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60],
)
def test_command_in_a_document_parses(
    document: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parse(command, capsys)


def test_the_columns_of_ha_status_are_explained() -> None:
    text = (ROOT / "docs" / "replication.md").read_text(encoding="utf-8")
    watching = text.split("\n## Watching it\n")[1].split("\n## ")[0]
    rows = [line.split("|") for line in watching.splitlines() if line.startswith("|")]
    for column, columns in ((1, SLAVE_COLUMNS), (2, COLUMNS)):
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row[column])} == {*columns}


def test_commands_are_found() -> None:
    assert len(documented()) >= 5


def test_examples_of_produce_parse(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["produce", "--help"]) == 0
    found = commands_in(capsys.readouterr().out.split("A line is", 1)[1])
    assert len(found) == 3
    for command in found:
        parse(command, capsys)


@pytest.mark.parametrize("words", [["produce", "orders"], ["quickstart"]])
def test_input_is_called_the_same_everywhere(words: list[str]) -> None:
    parser, _ = app.parser_for(words[0])
    assert str(parser.parse_args([*words, "--input", "x.ndjson"]).input) == "x.ndjson"


def parse(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser, module = app.parser_for(command[0])
    assert module is not None, command
    try:
        parser.parse_args(command)
    except SystemExit:
        pytest.fail(f"lakemq {' '.join(command)}: {capsys.readouterr().err}")
