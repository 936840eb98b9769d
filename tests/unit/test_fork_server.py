"""Forks of the server are what processes of their own would be, from arguments to exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lakemq
from lakemq.broker_process import BrokerProcess
from tests.support.fork_server import ForkedProcess, can_fork


def forked(tmp_path: Path, *arguments: str, **environment: str) -> ForkedProcess:
    with (tmp_path / "errors").open("ab") as errors:
        return ForkedProcess(
            [sys.executable, "-m", "lakemq.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env={**os.environ, **environment},
            cwd=tmp_path,
        )


def served(tmp_path: Path, environment: dict[str, str] | None = None) -> BrokerProcess:
    arguments = ("--store", "store", "--port", "0")
    return BrokerProcess(
        arguments, tmp_path / "log", directory=tmp_path, environment=environment, starts=ForkedProcess
    ).wait_ready()


def test_a_command_writes_where_it_was_told_to_and_its_code_is_known(tmp_path: Path) -> None:
    good = forked(tmp_path, "--version")
    assert good.stdout is not None
    with good.stdout as said:
        assert said.read().decode() == f"lakemq {lakemq.__version__}\n"
    assert good.wait(60) == 0
    assert (tmp_path / "errors").read_text() == ""

    bad = forked(tmp_path, "serve", "--no-such-option")
    assert bad.stdout is not None
    bad.stdout.close()
    assert bad.wait(60) == 2
    assert "--no-such-option" in (tmp_path / "errors").read_text()
    assert bad.poll() == 2  # as often as it is asked


def test_it_has_the_directory_and_the_environment_it_was_given(tmp_path: Path) -> None:
    with served(tmp_path, {"LAKEMQ_LOG_FORMAT": "json"}) as broker:
        assert (tmp_path / "store").is_dir()
        assert Path(f"/proc/{broker.pid}/cwd").readlink() == tmp_path
    assert broker.log_end().startswith("{")


def test_signals_end_it_as_they_end_a_process(tmp_path: Path) -> None:
    broker = served(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        broker.wait(0.01)
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0
    assert broker.close() == 0
    assert served(tmp_path).kill() == -signal.SIGKILL
    assert not Path(f"/proc/{broker.pid}").exists()  # nobody is left to be reaped


def test_all_threads_that_wait_for_its_end_see_it(tmp_path: Path) -> None:
    broker = served(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(broker.wait, 60) for _ in range(8)]
        broker.send_signal(signal.SIGTERM)
        assert [each.result() for each in waiting] == [0] * 8
    broker.close()


def test_a_signal_that_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        broker = served(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    with broker:
        ignored = next(
            int(line.split()[1], 16)
            for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines()
            if line.startswith("SigIgn:")
        )
        assert ignored & 1 << (signal.SIGHUP - 1)


def test_what_reaches_no_fork_is_not_forked() -> None:
    assert can_fork({"LAKEMQ_LOG_FORMAT": "json"})
    assert not can_fork({"LD_PRELOAD": "faulty.so"})
    assert not can_fork({"PYTHONDEVMODE": "1"})
    assert not can_fork({}, ("bash",))


def test_a_fork_has_no_pipe_of_another(tmp_path: Path) -> None:
    """Else whoever reads one to its end waits for the other."""
    (tmp_path / "other").mkdir()
    first = forked(tmp_path, "serve", "--store", "store", "--port", "0")
    assert first.stdout is not None
    with first.stdout as output, served(tmp_path / "other") as other:
        pipe = f"pipe:[{os.fstat(output.fileno()).st_ino}]"
        files = [str(file.readlink()) for file in Path(f"/proc/{other.pid}/fd").iterdir()]
        assert any(file.startswith("pipe:") for file in files)  # its own
        assert pipe not in files
        first.kill()
        assert first.wait(60) == -signal.SIGKILL
