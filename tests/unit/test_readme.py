"""README.md's table of features: each row names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED_TEST = re.compile(r"`(tests/[\w/.-]+)::(\w+)`")


def feature_rows() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Features", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    # A row in bold is a heading inside the table.
    return [row for row in rows[2:] if not row.startswith("| **")]


@pytest.mark.parametrize("row", feature_rows())
def test_every_feature_names_a_test_that_exists(row: str) -> None:
    named = NAMED_TEST.findall(row)
    assert named, f"no test named in: {row}"
    for file, test in named:
        assert test in names_in(ROOT / file), f"{file} has no test {test}"


def test_the_table_is_not_empty() -> None:
    assert len(feature_rows()) >= 10


def names_in(path: Path) -> set[str]:
    assert path.is_file(), f"there is no {path.relative_to(ROOT)}"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return set(re.findall(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)", text))
    nodes = list(ast.walk(ast.parse(text)))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    # A machine of rules: hypothesis has its test under such a name.
    machines = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return functions | machines
