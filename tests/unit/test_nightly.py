"""What is left to the night: each test that docs/guarantees.md names has a part that runs by day.

Owns how the marks are read: of a test, of its module (``pytestmark``), of the forms it is parametrised with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_MARK = "pytest.mark.nightly"
_PATH = re.compile(r"`((?:tests/)?[\w/]*\w/?(?:\.py|\.rs|/))`(?:: `(\w+)`)?")


def _forms(decorator: ast.expr) -> ast.expr | None:
    """The list of forms that a decorator gives: of ``parametrize``, or a fixture's ``params``."""
    if not isinstance(decorator, ast.Call):
        return None
    name = ast.unparse(decorator.func)
    if name == "pytest.mark.parametrize":
        return decorator.args[1]
    if name == "pytest.fixture":
        return next((given.value for given in decorator.keywords if given.arg == "params"), None)
    return None


def _is_nightly(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a test, or whoever asks for a fixture, runs at night alone."""
    for decorator in node.decorator_list:
        if ast.unparse(decorator) == _MARK:
            return True
        forms = _forms(decorator)
        if isinstance(forms, (ast.List, ast.Tuple)) and forms.elts:
            texts = [ast.unparse(form) for form in forms.elts]
            if all(text.startswith("pytest.param(") and _MARK in text for text in texts):
                return True
    return False


def in_source(source: str) -> Iterator[tuple[str, bool]]:
    """Yields each test of a module, state machines too, and whether all its forms are nightly."""
    body = ast.parse(source).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    whole = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and _MARK in ast.unparse(node)
        for node in body
    )
    fixtures = {node.name for node in functions if not node.name.startswith("test_") and _is_nightly(node)}
    for node in functions:
        if node.name.startswith("test_"):
            asked = {argument.arg for argument in node.args.args}
            yield node.name, whole or _is_nightly(node) or bool(asked & fixtures)
    for machine in body:
        if isinstance(machine, ast.Assign) and ast.unparse(machine.value).endswith(".TestCase"):
            yield ast.unparse(machine.targets[0]), whole


def rows() -> Iterator[str]:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    for line in text.partition("| Proved by |")[2].splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield line


def only_by_night(row: str) -> list[str]:
    """The tests that a row names and that nothing of runs by day."""
    folder = "tests/integration/"
    found = []
    for path, test in _PATH.findall(row.rpartition(" | ")[2]):
        if path.startswith("tests/"):
            folder = path.rpartition("/")[0] + "/"
        named = ROOT / (path if path.startswith("tests/") else folder + path)
        if named.suffix == ".rs" or named == ROOT / "tests" / "rust":
            continue  # Rust's have no such mark
        modules = list(named.glob("test_*.py")) if named.is_dir() else [named]
        tests = [
            nightly
            for module in modules
            for name, nightly in in_source(module.read_text(encoding="utf-8"))
            if test in ("", name)
        ]
        scenario = named.suffix == ".py" and not named.name.startswith("test_")  # that a test runs
        assert tests or scenario, f"{path} {test}: there is no such test"
        if tests and all(tests):
            found.append(f"{path} {test}".strip())
    return found


def test_the_rows_are_read() -> None:
    assert len(list(rows())) > 30


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[2:60].strip())
def test_each_test_of_a_guarantee_has_a_part_that_is_not_nightly(row: str) -> None:
    assert _PATH.search(row.rpartition(" | ")[2]), "the row names no test"
    assert only_by_night(row) == []


def test_a_nightly_test_beside_a_daily_one_is_noticed() -> None:
    daily, nightly = "`tests/integration/test_ledger_faults.py`", "`tests/integration/test_ledger_catalog.py`"
    assert only_by_night(f"| It is so | {daily} |") == []
    assert only_by_night(f"| It is so | {daily}, {nightly} |") == [nightly.strip("`")]
    named = "test_a_commit_that_fails_or_whose_answer_is_lost_in_broadcast_mode"
    assert only_by_night(f"| It is so | {daily}: `{named}` |") == [f"{daily.strip('`')} {named}"]


@pytest.mark.parametrize(
    ("source", "nightly"),
    [
        ("def test_t(): ...", False),
        ("@pytest.mark.nightly\ndef test_t(): ...", True),
        ("pytestmark = [pytest.mark.long, pytest.mark.nightly]\ndef test_t(): ...", True),
        ("pytestmark = pytest.mark.long\ndef test_t(): ...", False),
        (
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.nightly), 2])\n"
            "def test_t(a): ...",
            False,
        ),
        (
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.nightly)])\ndef test_t(a): ...",
            True,
        ),
        (
            "@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.nightly)])\ndef a(): ...\n"
            "def test_t(a): ...",
            True,
        ),
        ("test_t = Machine.TestCase", False),
    ],
)
def test_marks_are_read_wherever_they_stand(source: str, nightly: bool) -> None:
    assert list(in_source(source)) == [("test_t", nightly)]
