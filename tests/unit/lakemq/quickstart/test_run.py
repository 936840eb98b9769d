"""The quick start's directory is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemq.quickstart import run
from lakemq.terminal.failure import CommandFailed
from lakemq.upload.ndjson import LineRule
from store_native.errors import InvalidRequest


def test_directory_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(CommandFailed, match="no quick start made it"):
        run.empty_home(tmp_path)
    assert (tmp_path / "store").exists()


@pytest.mark.parametrize("handler", ["no_such_module_here:f", "json:no_such", "json"])
def test_a_handler_that_is_not_there_is_refused_before_anything_is_begun(
    handler: str, tmp_path: Path
) -> None:
    source = tmp_path / "lines.ndjson"
    source.touch()
    home = tmp_path / "q"
    said: list[str] = []
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        run.run(run.Settings(home, source, LineRule(), handler, keep_serving=False), said.append)
    assert not home.exists()
    assert said == []


def test_directory_of_an_earlier_run_is_emptied_but_for_its_input(tmp_path: Path) -> None:
    home = run.empty_home(tmp_path / "q")
    for name in ("store", "ledger", "checkpoint", "input"):
        (home / name).mkdir()
    run.empty_home(home)
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"input"}
