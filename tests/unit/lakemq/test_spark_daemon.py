"""A worker the JVM has done with ends without a word and closes; every other failure is shown."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakemq import spark_daemon

ROOT = Path(__file__).resolve().parents[3]

FORKED = """\
import os, sys, traceback
from lakemq import spark_daemon

spark_daemon.hush(globals())
try:
    raise {error}("from the worker")
except BaseException:
    traceback.print_exc()
    os._exit(1)
"""
# What is run as the daemon has its name, and prints through the name traceback.
HUSHED = """\
import sys, traceback, types
from lakemq import spark_daemon

__spec__ = types.SimpleNamespace(name={daemon!r})
spark_daemon.hush_worker()
try:
    raise {error}("from the worker")
except BaseException:
    traceback.print_exc()
    sys.exit(1)
"""


def said(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.parametrize("error", ["BrokenPipeError", "ConnectionResetError"])
def test_worker_whose_socket_is_closed_says_nothing(error: str) -> None:
    assert said(FORKED.format(error=error)) == ""
    assert said(HUSHED.format(error=error, daemon="pyspark.daemon")) == ""


def test_any_other_failure_is_shown() -> None:
    assert "ValueError: from the worker" in said(FORKED.format(error="ValueError"))
    assert "ValueError: from the worker" in said(HUSHED.format(error="ValueError", daemon="pyspark.daemon"))


def test_only_pysparks_daemon_is_hushed() -> None:
    assert "BrokenPipeError" in said(HUSHED.format(error="BrokenPipeError", daemon="a.users.own"))


ENDING = """\
import signal, sys, threading, time

def end(number, frame):
    print("closed", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, {at_sigterm})
print("runs", flush=True)
signal.pause()
signal.pause()
"""


@pytest.mark.parametrize(
    ("at_sigterm", "said", "code"),
    [
        ("end", "closed\n", 0),
        ("signal.SIG_DFL", "", -signal.SIGTERM),
        ("signal.SIG_IGN", "", -signal.SIGKILL),
    ],
)
def test_a_worker_that_is_to_be_killed_closes_first_and_is_killed_where_it_does_not_end(
    at_sigterm: str, said: str, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDING.format(at_sigterm=at_sigterm)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "runs\n"
        spark_daemon.kill(worker.pid, signal.SIGKILL, 10 if code != -signal.SIGKILL else 0.1)
        assert worker.stdout.read() == said
        assert worker.wait(30) == code


@pytest.mark.parametrize("lacks", ["fork", "pidfd_open"])
def test_a_worker_is_killed_at_once_where_nobody_can_wait_for_its_end(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_to_be_had(*_: object) -> int:
        raise BlockingIOError("no more of them")

    monkeypatch.setattr(os, lacks, none_to_be_had)
    with subprocess.Popen(
        [sys.executable, "-c", ENDING.format(at_sigterm="signal.SIG_IGN")], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "runs\n"
        spark_daemon.kill(worker.pid, signal.SIGKILL)
        assert worker.wait(30) == -signal.SIGKILL
    with pytest.raises(OSError, match=r".*"):
        spark_daemon.kill(worker.pid, signal.SIGKILL)


def test_pysparks_daemon_ends_a_worker_by_it() -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "lakemq.spark_daemon", "pyspark.worker"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", ENDING.format(at_sigterm="end")], stdout=subprocess.PIPE, text=True
    )
    with daemon, worker:
        try:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "runs\n"
            assert select.select([daemon.stdout], [], [], 60)[0], "it says where it listens"
            daemon.stdin.write(worker.pid.to_bytes(4, "big"))
            daemon.stdin.flush()
            assert worker.stdout.read() == "closed\n"
        finally:
            worker.kill()
            daemon.kill()
