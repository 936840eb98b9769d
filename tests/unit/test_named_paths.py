"""A path of the project that a file names is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "tests|benchmarks|docs|lakemq|jobs|ingest_api|delta_tables|structured_streaming"
    "|ha_replicator|store_native"
)
NAMED = re.compile(
    rf"(?<![\w/.*{{-])((?:{FOLDERS}|\.ci)/[\w/.-]*\w\.(?:py|pyi|md|rs|toml|sql|xml|java|c|ya?ml|service))\b"
)


def test_every_path_that_a_file_names_is_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("no clone: what belongs to the project is not known")
    gone = [
        f"{file} names {path}"
        for file in filter(None, listed.stdout.split("\0"))
        if (ROOT / file).is_file()
        for path in NAMED.findall((ROOT / file).read_text(encoding="utf-8", errors="replace"))
        if not (ROOT / path).exists()
    ]
    assert gone == []
