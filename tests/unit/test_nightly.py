"""What is left to the night: no promise of docs/guarantees.md is held by nightly tests alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_MARK = "pytest.mark.nightly"
_PATH = re.compile(r"`((?:tests/)?[\w/]*\w/?(?:\.py|\.rs|/))`(?:: `(\w+)`)?")


def in_module(module: Path) -> Iterator[tuple[str, bool]]:
    """Yields each test of a module, and whether all its forms are nightly."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, any(ast.unparse(decorator) == _MARK for decorator in node.decorator_list)


def rows() -> Iterator[str]:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    for line in text.partition("| Proved by |")[2].splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield line


def held_by_day(row: str) -> bool:
    folder = "tests/integration/"
    for path, test in _PATH.findall(row.rpartition(" | ")[2]):
        if path.startswith("tests/"):
            folder = path.rpartition("/")[0] + "/"
        named = ROOT / (path if path.startswith("tests/") else folder + path)
        if named.suffix == ".rs" or named == ROOT / "tests" / "rust":
            return True
        modules = list(named.glob("test_*.py")) if named.is_dir() else [named]
        found = [nightly for module in modules for name, nightly in in_module(module) if test in ("", name)]
        assert found or not test, f"{path} {test}: there is no such test"
        # A module without functions has state machines, or is a scenario that a test runs.
        if not all(found) or (not found and named.name.startswith("test_")):
            return True
    return False


def test_the_rows_are_read() -> None:
    assert len(list(rows())) > 30


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[2:60].strip())
def test_a_guarantee_has_a_test_that_is_not_nightly(row: str) -> None:
    assert held_by_day(row), "all tests that the row names are nightly"


def test_a_row_of_nightly_tests_alone_is_noticed() -> None:
    assert not held_by_day("| It sends once | `tests/cluster/test_outbox_killed.py` |")
    assert held_by_day("| It sends once | `tests/cluster/test_outbox_killed.py`, `test_driver_killed.py` |")
