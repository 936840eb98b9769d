"""Runs mutants_of_a_file.py for each file of the table, or for the one named as the argument.

Owns mutmut's configuration. Run by .ci/mutants-python in a scratch copy of the tree, which it writes to.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

TABLE = Path(".ci/mutants-python.toml")
LOGGED = r"^\s*_?log\.\w+\("
# A change that makes the tests hang ends after (their own time + constant) * multiplier.
TIMEOUT = {"timeout_constant": 4, "timeout_multiplier": 5}


def configure(file: str, tests: list[str], without: list[str]) -> None:
    """Writes mutmut's configuration for one file; everything is copied, and one file changed."""
    tracked = [path.name for path in Path().iterdir() if path.name not in ("mutants", "tmp")]
    packages = [name for name in tracked if Path(name, "__init__.py").exists()]
    lists = {
        "source_paths": packages,
        "only_mutate": [file],
        "also_copy": [name for name in tracked if name not in packages],
        "do_not_mutate_patterns": [LOGGED],
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": [
            "-pno:xdist",
            "-pno:cacheprovider",
            "--hypothesis-profile=mutants",
            f"--basetemp={Path('tmp').absolute()}",
            "-Wignore::pytest.PytestAssertRewriteWarning",
            *(f"--deselect={test}" for test in without),
        ],
    }
    lines = ["[mutmut]", *(f"{name} = {value}" for name, value in TIMEOUT.items())]
    for name, values in lists.items():
        lines += [f"{name} =", *(f"  {value}" for value in values)]
    Path("setup.cfg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Runs the files one after another, each in a process of its own."""
    table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    files = [file for file in table if not sys.argv[1:] or file == sys.argv[1]]
    if not files:
        print(f"{sys.argv[1]} is not in {TABLE}", file=sys.stderr)
        return 2
    print(
        "| File | Changes | Tried | Noticed | Change nothing | Score |\n|---|---|---|---|---|---|", flush=True
    )
    failed = 0
    for file in files:
        shutil.rmtree("mutants", ignore_errors=True)
        configure(file, table[file]["tests"], table[file].get("without", []))
        script = Path(__file__).with_name("mutants_of_a_file.py")
        failed |= subprocess.run([sys.executable, str(script), file], check=False).returncode
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
