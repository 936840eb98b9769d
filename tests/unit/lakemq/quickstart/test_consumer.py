"""The command that the quick start types, and its document's words about it."""

from __future__ import annotations

from pathlib import Path

from lakemq.quickstart.consumer import UNTIL_IDLE, Consumption

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "quickstart.md"


def test_the_group_begins_with_what_was_posted_before_it(tmp_path: Path) -> None:
    command = Consumption("http://127.0.0.1:1", "t", "g", "m:f", tmp_path, tmp_path, tmp_path).command()
    assert command[command.index("--from") + 1] == "earliest"


def test_the_document_says_for_how_long_the_group_is_idle_before_it_ends() -> None:
    seconds = UNTIL_IDLE.removesuffix("s")
    assert f"nothing was new, pending or due for {seconds} s." in DOCUMENT.read_text(encoding="utf-8")
