"""The command that the quick start types."""

from __future__ import annotations

from pathlib import Path

from lakemq.quickstart.consumer import Consumption


def test_the_group_begins_with_what_was_posted_before_it(tmp_path: Path) -> None:
    command = Consumption("http://127.0.0.1:1", "t", "g", "m:f", tmp_path, tmp_path, tmp_path).command()
    assert command[command.index("--from") + 1] == "earliest"
