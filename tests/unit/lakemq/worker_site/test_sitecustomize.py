"""What the workers of a local session run first: PySpark out of its zip only where there is no other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakemq
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[4]
SITE = Path(lakemq.__file__).with_name("worker_site")
SHOW = "import sys; print([p for p in sys.path if p.endswith('.zip') and 'py' in p and 'python3' not in p])"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose sockets have names of at most 107 bytes, as the kernel wants them."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def zips(tmp_path: Path) -> list[str]:
    """Archives as Spark puts them before everything else."""
    made = [tmp_path / "pyspark.zip", tmp_path / "py4j-0.10.9.9-src.zip"]
    for path, package in zip(made, ("pyspark", "py4j"), strict=True):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{package}/__init__.py", "")
    return [str(path) for path in made]


def python(paths: list[str], *arguments: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SITE), *paths])}
    ended = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_installed_pyspark_goes_before_the_zip(zips: list[str]) -> None:
    pytest.importorskip("pyspark")
    assert python(zips, "-c", SHOW) == "[]\n"


def test_without_an_installed_pyspark_the_zip_stays(zips: list[str]) -> None:
    assert python(zips, "-S", "-c", f"import sitecustomize; {SHOW}") == f"{zips}\n"


def test_sitecustomize_of_the_environment_runs_as_itself(zips: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print(__file__)\n")
    shown = python([*zips, str(own)], "-c", f"import sitecustomize; print(sitecustomize.__file__); {SHOW}")
    assert shown == f"{own / 'sitecustomize.py'}\n" * 2 + "[]\n"


@pytest.mark.parametrize("hushed", [True, False])
def test_worker_whose_jvm_listens_no_more_ends_without_a_stack(hushed: bool, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    env = {**os.environ, "PYTHONPATH": str(SITE) if hushed else ""}
    env["PYTHON_WORKER_FACTORY_SOCK_PATH"] = str(tmp_path / "gone.sock")
    worker = [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
    ended = subprocess.run(worker, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert (ended.stderr == "") is hushed, ended.stderr


@pytest.mark.parametrize("hushed", [True, False])
def test_worker_whose_jvm_hangs_up_on_it_ends_without_a_stack(hushed: bool, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "jvm.sock"))
        listener.listen()
        listener.settimeout(60)
        env = {**os.environ, "PYTHONPATH": str(SITE) if hushed else ""}
        env["PYTHON_WORKER_FACTORY_SOCK_PATH"] = str(tmp_path / "jvm.sock")
        module = "pyspark.sql.streaming.python_streaming_source_runner"
        with subprocess.Popen([sys.executable, "-m", module], env=env, stderr=subprocess.PIPE) as worker:
            listener.accept()[0].close()  # a query that is stopped while its planner computes
            _, said = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert (said == b"") is hushed, said


@pytest.mark.parametrize("hushed", [True, False])
@pytest.mark.parametrize("daemon", ["pyspark.daemon", "lakemq.spark_daemon"])
def test_forked_worker_that_nobody_waits_for_ends_without_a_stack(
    daemon: str, hushed: bool, short_path: Path
) -> None:
    pytest.importorskip("pyspark")
    env = {**os.environ, "PYTHONPATH": str(SITE) if hushed else ""}
    env |= {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(short_path)}
    command = [sys.executable, "-m", daemon, "pyspark.worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        name = process.stdout.read(int.from_bytes(process.stdout.read(4), "big"))
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as jvm:
                jvm.connect(name)
        with socket.socket(socket.AF_UNIX) as jvm:
            jvm.connect(name)
            assert len(jvm.recv(4)) == 4  # forked in their order: the others are there, or gone
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text() == "", 60)
        _, said = process.communicate(timeout=60)
    assert (said == b"") is (hushed or daemon == "lakemq.spark_daemon"), said
