"""The table of `make mutants`: its files and tests exist, and it names each test file once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / ".ci/mutants-python.toml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("file", TABLE)
def test_every_file_and_each_of_its_tests_exists(file: str) -> None:
    assert file.endswith(".py")
    assert (ROOT / file).is_file()
    tests = TABLE[file]["tests"]
    assert tests
    assert len(set(tests)) == len(tests)
    for test in [*tests, *TABLE[file].get("without", []), *TABLE[file].get("programs", [])]:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), f"there is no {path}"
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", TABLE)
def test_what_counts_as_equivalent_is_still_in_the_file_and_has_its_reason(file: str) -> None:
    source = "".join((ROOT / file).read_text(encoding="utf-8").split())
    for entry in TABLE[file].get("equivalent", []):
        assert entry.keys() == {"old", "new", "why"}
        assert entry["old"] != entry["new"]
        assert entry["why"]
        assert "".join(entry["old"].split()) in source
