"""A user's packages that have the names of ours, in processes of their own: imports are for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(directory: Path, code: str) -> str:
    """Runs code as a user does whose directory comes first."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(2, {str(ROOT)!r})\n{code}"],
        cwd=directory,
        env={"PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "jobs" / "deep").mkdir(parents=True)
    (tmp_path / "jobs" / "__init__.py").write_text("raise ImportError('the user.s own')\n")
    (tmp_path / "jobs" / "mine.py").write_text("NAME = __name__\n")
    (tmp_path / "jobs" / "deep" / "down.py").write_text("NAME = __name__\n")
    (tmp_path / "jobs" / "settings.py").write_text("raise ImportError('the user.s own')\n")
    return tmp_path


CLAIM = "from lakemq import own_packages; own_packages.claim(); own_packages.claim()\n"


def test_our_packages_are_ours_beside_a_users_of_the_same_name(users: Path) -> None:
    where = run(users, f"{CLAIM}import jobs, jobs.handler.loader\nprint(jobs.handler.loader.__file__)")
    assert Path(where) == ROOT / "jobs" / "handler" / "loader.py"


def test_modules_of_the_users_package_are_found_too(users: Path) -> None:
    names = run(users, f"{CLAIM}import jobs.mine, jobs.deep.down\nprint(jobs.mine.NAME, jobs.deep.down.NAME)")
    assert names == "jobs.mine jobs.deep.down"


def test_claiming_imports_nothing(users: Path) -> None:
    loaded = run(users, f"{CLAIM}print([name for name in own_packages.NAMES if name in sys.modules])")
    assert loaded == "[]"


def test_module_that_is_nowhere_is_missing_as_ever(users: Path) -> None:
    missing = "try:\n    import jobs.nowhere\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    assert run(users, CLAIM + missing) == "jobs.nowhere"
