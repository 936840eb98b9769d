"""The first lines of a module: what it owns, and not who calls it, which goes stale."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["python-packages"]
MODULES = sorted(
    str(path.relative_to(ROOT))
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"  # the map of its package
)
FIRST_SENTENCE_SAYS_ALL = {
    "ingest_api/http/routes/health.py",
    "ingest_api/http/routes/messages.py",
    "ingest_api/http/routes/queues.py",
    "lakemq/cli/commands/produce.py",
    "store_native/errors.py",
    "store_native/names.py",
}
STARTS_THREADS = re.compile(r"\b(Thread|ThreadPoolExecutor|to_thread|run_in_executor)\(")
CALLERS = re.compile(r"\b([Cc]alled (by|on|from)|([Ww]ritten|[Rr]ead|[Ss]tarted|[Uu]sed) by `?\w+)\b")


def head(module: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8"))) or ""


def test_a_head_says_what_its_module_owns() -> None:
    silent = {module for module in MODULES if not re.search(r"\bowns\b", head(module), re.IGNORECASE)}
    assert silent <= FIRST_SENTENCE_SAYS_ALL


def test_a_head_names_the_threads_that_its_module_starts() -> None:
    starting = {module for module in MODULES if STARTS_THREADS.search((ROOT / module).read_text("utf-8"))}
    assert len(starting) > 5
    assert [module for module in sorted(starting) if "\nThreads: " not in head(module)] == []


def test_no_head_names_its_callers() -> None:
    named = {module: found[0] for module in MODULES if (found := CALLERS.search(head(module)))}
    assert not named


@pytest.mark.parametrize("line", ["Called by consume.py.", "Pure; called on executors.", "Read by `jobs`."])
def test_callers_are_recognised(line: str) -> None:
    assert CALLERS.search(line)
