"""Whether Spark was ended by the signal that asked a run to stop, or failed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.runtime import spark_end
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.run_loop import RunLoop
from jobs.runtime.spark_end import SparkEnded

_JVM = "import sys; sys.stdin.read(); sys.exit(int(sys.argv[1]))"


class Session:
    """A session whose JVM ends with a status when it is asked to."""

    def __init__(self, status: int) -> None:
        self.stops = 0
        command = [sys.executable, "-c", _JVM, str(status)]
        self.jvm = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=self.jvm))

    def end(self) -> None:
        assert self.jvm.stdin is not None
        self.jvm.stdin.close()
        self.jvm.wait()

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = Session(getattr(request, "param", 128 + signal.SIGTERM))
    yield made
    made.end()


def fails(session: Any, *, asked: bool) -> None:
    loop = RunLoop(session, BatchGate())
    with loop.stopped_by_signals():
        if asked:
            signal.raise_signal(signal.SIGTERM)
        raise ConnectionRefusedError("nobody there")


def test_a_failure_behind_a_stop_is_none_where_the_jvm_ended_as_on_the_signal(session: Any) -> None:
    session.end()
    with pytest.raises(SparkEnded, match="the next start repeats it"):
        fails(session, asked=True)
    spark_end.stop(session)
    assert session.stops == 0, "there is nothing left to stop"


def test_one_that_is_killed_by_it_counts(session: Any) -> None:
    session.jvm.send_signal(signal.SIGTERM)
    with pytest.raises(SparkEnded):
        fails(session, asked=True)


def test_without_a_stop_it_is_a_failure_whatever_ended_the_jvm(session: Any) -> None:
    session.end()
    with pytest.raises(ConnectionRefusedError):
        fails(session, asked=False)


@pytest.mark.parametrize("session", [0, 1, 128 + signal.SIGKILL], indirect=True)
def test_a_jvm_that_ended_otherwise_is_a_failure(session: Any) -> None:
    session.end()
    with pytest.raises(ConnectionRefusedError):
        fails(session, asked=True)


def test_a_failure_beside_a_jvm_that_runs_stays_one(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_end, "_END_S", 0.01)
    with pytest.raises(ConnectionRefusedError):
        fails(session, asked=True)
    spark_end.stop(session)
    assert session.stops == 1


def test_the_jvm_of_somebody_else_is_not_asked() -> None:
    for elsewhere in (object(), SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None))):
        with pytest.raises(ConnectionRefusedError):
            fails(elsewhere, asked=True)
