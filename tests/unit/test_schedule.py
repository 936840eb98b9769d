"""How tests are given to workers: a module is never divided, since its fixtures would be made again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.schedule import takes_the_session, unit_of

ROOT = Path(__file__).resolve().parents[2]
_MODULE = """\
import os
import pathlib

import pytest


@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with (pathlib.Path(__file__).parent / "ran").open("a") as ran:
        ran.write(f"{pathlib.Path(__file__).name} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


def workers_of_the_makefile() -> list[str]:
    line = re.search(r"^WORKERS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    return line[1].split()


@pytest.mark.long
def test_the_workers_of_make_test_take_whole_modules(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text(_MODULE)
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    command = [sys.executable, "-m", "pytest", "-q", *workers_of_the_makefile(), "--rootdir", ".", "."]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTEST_XDIST_AUTO_NUM_WORKERS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "18 passed" in done.stdout, done.stdout + done.stderr
    ran = (tmp_path / "ran").read_text().splitlines()
    assert len(ran) == 18
    assert len(set(ran)) == 3, "each module at one worker"
    assert len({line.split()[1] for line in ran}) == 2, "both workers have some"


def test_modules_with_spark_are_one_unit_of_the_fast_tests_and_each_other_is_its_own() -> None:
    assert takes_the_session("tests/integration/test_source_table.py")
    assert not takes_the_session("tests/unit/test_readme.py")
    source = unit_of("tests/integration/test_source_table.py::test_x[a::b]")
    assert source == unit_of("tests/integration/test_sink_columns.py::test_y")
    assert unit_of("tests/unit/test_readme.py::test_x") == unit_of("tests/unit/test_readme.py::test_y")
    assert unit_of("tests/unit/test_readme.py::test_x") != unit_of("tests/unit/test_mutants.py::test_x")
