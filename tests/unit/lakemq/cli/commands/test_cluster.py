"""`lakemq cluster up`: what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemq.cli.app import main


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["cluster", "up", "--directory", str(file)]) == 2
    assert f"--directory: {file} is a file, not a directory" in capsys.readouterr().err
    assert main(["cluster", "up", "--directory", str(tmp_path), "--sync", "--slaves", "0"]) == 2
