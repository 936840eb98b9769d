"""A worker that Spark ends closes its handler, and is not kept by a handler that does not close."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.handler.opened_handler import CLOSE_S

WORKER = """
import os, signal
import pyspark.daemon
from jobs.handler.loader import HandlerTarget
from jobs.handler.opened_handler import opened
opened(HandlerTarget("tests.unit.jobs.handler.handlers_that_end:{name}"))
signal.signal(signal.SIGHUP, pyspark.daemon.SIG_DFL)  # as PySpark's worker does before each task
os.kill(os.getpid(), signal.{ended_by})
"""


def ended(name: str, ended_by: str, notes: Path) -> int:
    worker = subprocess.run(
        [sys.executable, "-c", WORKER.format(name=name, ended_by=ended_by)],
        env={**os.environ, "HANDLER_NOTES": str(notes)},
        timeout=CLOSE_S + 60,
        check=False,
    )
    return worker.returncode


@pytest.mark.parametrize("ended_by", ["SIGHUP", "SIGTERM"])
def test_a_worker_that_is_ended_closes_its_handler(tmp_path: Path, ended_by: str) -> None:
    assert ended("Opened", ended_by, tmp_path / "notes") == 0
    assert (tmp_path / "notes").read_text() == "made\nopen\nclose\n"


@pytest.mark.parametrize("ended_by", ["SIGHUP", "SIGTERM"])
def test_a_worker_that_is_ended_again_while_it_closes_closes_to_the_end(
    tmp_path: Path, ended_by: str
) -> None:
    assert ended("ToldTwice", ended_by, tmp_path / "notes") == 0
    assert (tmp_path / "notes").read_text() == "made\nopen\nclose\n"


def test_a_handler_that_does_not_close_keeps_no_worker(tmp_path: Path) -> None:
    assert ended("NeverClosed", "SIGHUP", tmp_path / "notes") == -signal.SIGALRM


TRACED = """
import os, signal, sys
import pyspark.daemon
from jobs.handler.loader import HandlerTarget
from jobs.handler.opened_handler import opened
opened(HandlerTarget("tests.unit.jobs.handler.handlers_that_end:dies"))
from opentelemetry import trace
trace.get_tracer("handler").start_span("the last one").end()
{end}
"""


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGTERM)", "pyspark.daemon.os._exit(0)"], ids=["signal", "socket"]
)
def test_a_worker_that_is_ended_sends_its_last_spans(end: str) -> None:
    code = TRACED.format(end=end)
    asking = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    worker = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asking},
        capture_output=True,
        timeout=CLOSE_S + 60,
        check=True,
    )
    assert b'"name": "the last one"' in worker.stdout
