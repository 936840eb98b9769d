"""Each setting of which `lakemq serve --help` has nothing but the bounds is explained in docs/http.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemq.cli.app import main

SETTINGS = Path(__file__).parents[4].joinpath("docs", "http.md").read_text(encoding="utf-8")


def test_each_setting_of_the_help_is_in_the_document_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    # Options that have a sentence in the help have short names, without a dot or an underscore.
    names = set(re.findall(r"^  --(?:[a-z]+\.)?([a-z]+(?:_[a-z]+)+)", capsys.readouterr().out, re.MULTILINE))
    assert len(names) > 30
    section = SETTINGS[SETTINGS.index("## Settings") :]
    assert sorted(name for name in names if f"`{name}`" not in section) == []
