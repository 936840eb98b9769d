"""The maps of the packages: a package's docstring, or docs/architecture.md, names every part there is.

Contract: a module or a folder that is added or renamed is on its map in the same change.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.test_module_heads import PACKAGES, ROOT

STORE = "store_native/src"
ONE_NOUN_A_FILE = {"lakemq/cli/commands"}  # named as the commands are, which `lakemq --help` lists
MAPPED = sorted(
    str(path.parent.relative_to(ROOT))
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if str(path.parent.relative_to(ROOT)) not in ONE_NOUN_A_FILE
)


def parts_of(package: Path) -> set[str]:
    modules = {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    return modules | folders


def unnamed(parts: set[str], text: str) -> set[str]:
    return {part for part in parts if not re.search(rf"(?<![\w/]){re.escape(part)}", text)}


@pytest.mark.parametrize("package", MAPPED)
def test_a_packages_map_names_each_of_its_parts(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert not unnamed(parts_of(ROOT / package), text)


@pytest.mark.parametrize("package", MAPPED)
def test_a_packages_map_names_nothing_that_is_gone(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = re.findall(r"^(?: {4})?((?:[\w/]+(?:\.py|/)(?:, )?)+)", text, re.MULTILINE)
    named = [name for line in lines for name in line.split(", ")]
    assert [name for name in named if not (ROOT / package / name).exists()] == []


def test_the_architecture_names_each_part_of_the_store() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Owners in the store")[2].partition("\n## ")[0]
    files = {path.name for path in (ROOT / STORE).glob("*.rs")}
    folders = {f"{path.parent.name}/" for path in (ROOT / STORE).glob("*/mod.rs")}
    assert not unnamed(files | folders, table)


@pytest.mark.parametrize(
    ("text", "missing"),
    [("send.py  sends", {"end.py"}), ("end.py  ends", set()), ("http/end.py", {"end.py"})],
)
def test_a_part_is_named_by_its_whole_name(text: str, missing: set[str]) -> None:
    assert unnamed({"end.py"}, text) == missing
