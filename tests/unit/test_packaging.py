"""What the distributions hold and ask for, and what works without the native module."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_NATIVE = """\
import sys
sys.modules["store_native._store"] = None  # as on a system it was not built for
import lakemq, lakemq.client, lakemq.producer, lakemq.cli.app, store_native
from lakemq import Client, Message, Producer
Client("127.0.0.1:1").close()
try:
    from store_native import Store
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the source distribution, below its one directory."""
    out = tmp_path_factory.mktemp("sdist")
    maturin = Path(sys.executable).with_name("maturin")
    command = [
        str(maturin),
        "sdist",
        "--manifest-path",
        str(ROOT / "store_native/Cargo.toml"),
        "-o",
        str(out),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_source_distribution_holds_what_the_build_needs(sdist: set[str]) -> None:
    sources = {*ROOT.glob("store_native/src/**/*.rs"), *ROOT.glob("tests/rust/**/*.rs")}
    assert len(sources) > 50
    needed = {str(path.relative_to(ROOT)) for path in sources}
    needed |= {"lakemq/worker_site/sitecustomize.py"}  # in no package: it is on the workers' path
    needed |= {"store_native/Cargo.toml", "store_native/Cargo.lock", "pyproject.toml", "README.md", "LICENSE"}
    assert needed <= sdist, sorted(needed - sdist)


def test_source_distribution_holds_nothing_built(sdist: set[str]) -> None:
    assert not [name for name in sdist if name.endswith(".so") or "target/" in name or "__pycache__" in name]


def test_uvicorn_is_pinned_to_one_minor_in_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = next(line for line in project["optional-dependencies"]["server"] if line.startswith("uvicorn"))
    low, high = asked.removeprefix("uvicorn").split(",")
    major, minor = (int(part) for part in low.removeprefix(">=").split(".")[:2])
    assert high == f"<{major}.{minor + 1}"


def test_the_command_begins_where_ctrl_c_is_taken_care_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["lakemq"] == "lakemq.cli.start:main"


def test_a_runtime_with_its_own_spark_keeps_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras["managed"]) < set(extras["spark"])
    asked = " ".join([*project["dependencies"], *extras["managed"]])
    assert "pyspark" not in asked
    assert "delta-spark" not in asked


def test_client_and_command_line_need_no_native_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_NATIVE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("store_native.Store needs LakeMQ's native module")


def test_client_does_not_load_the_native_module() -> None:
    code = "import sys, lakemq.client, lakemq.producer; print('store_native._store' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.strip() == "False"
