"""A worker the JVM has done with ends without a word; every other failure is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
