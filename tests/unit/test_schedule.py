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


def run_pytest(directory: Path, workers: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a directory's modules with the workers of `make test`."""
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    root = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH"))))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *workers_of_the_makefile(),
        *options,
        "--rootdir",
        ".",
        ".",
    ]
    return subprocess.run(
        command,
        cwd=directory,
        env={**environment, "PYTEST_XDIST_AUTO_NUM_WORKERS": str(workers), "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_modules(directory: Path, workers: int, *options: str) -> dict[str, str]:
    """Runs a directory's modules of six tests each, and returns at which worker each was."""
    modules = [path.name for path in directory.glob("test_*.py")]
    done = run_pytest(directory, workers, *options)
    assert f"{6 * len(modules)} passed" in done.stdout, done.stdout + done.stderr
    ran = (directory / "ran").read_text().splitlines()
    assert len(ran) == 6 * len(modules)
    at = dict(line.split() for line in ran)
    assert {f"{module} {at[module]}" for module in modules} == set(ran), "each module at one worker"
    return at


@pytest.mark.long
def test_the_workers_of_make_test_take_whole_modules(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text(_MODULE)
    assert len(set(run_modules(tmp_path, 2).values())) == 2, "both workers have some"


@pytest.mark.long
def test_of_three_workers_two_have_modules_with_spark_and_all_have_others(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"test_spark_{number}.py").write_text(f"{_MODULE}\n# spark: SparkSession\n")
    (tmp_path / "test_without.py").write_text(_MODULE)
    at = run_modules(tmp_path, 3, "-p", "tests.support.session_schedule")
    with_spark = {worker for module, worker in at.items() if "spark" in module}
    assert len(with_spark) == 2
    assert at["test_without.py"] not in with_spark
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "SESSIONS := -p tests.support.session_schedule" in makefile
    assert makefile.count("$(call BESIDE,$(SESSIONS)") == 2


@pytest.mark.long
def test_a_worker_that_dies_fails_one_test_and_others_run_the_rest(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(_MODULE)
    (tmp_path / "test_c.py").write_text(f"{_MODULE}    assert number != 2 or os._exit(1)\n")
    done = run_pytest(tmp_path, 1, "-p", "tests.support.session_schedule")
    assert "1 failed, 17 passed" in done.stdout, done.stdout + done.stderr
    assert "test_c.py::test_it[2]" in done.stdout
    assert [line.split()[0] for line in (tmp_path / "ran").read_text().splitlines()] == [
        *["test_a.py"] * 6,
        *["test_b.py"] * 6,
        *["test_c.py"] * 6,
    ], "each once"


def test_modules_with_spark_are_one_unit_of_the_fast_tests_and_each_other_is_its_own() -> None:
    assert takes_the_session("tests/integration/test_source_table.py")
    assert not takes_the_session("tests/unit/test_readme.py")
    source = unit_of("tests/integration/test_source_table.py::test_x[a::b]")
    assert source == unit_of("tests/integration/test_sink_columns.py::test_y")
    assert unit_of("tests/unit/test_readme.py::test_x") == unit_of("tests/unit/test_readme.py::test_y")
    assert unit_of("tests/unit/test_readme.py::test_x") != unit_of("tests/unit/test_mutants.py::test_x")
