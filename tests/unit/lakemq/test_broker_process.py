"""The launcher of brokers, with other processes in their place: ready, ended, late, never left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lakemq.broker_process import BrokerProcess, NotReady

READY = (
    "print('a line before', 'lakemq broker ready on http://127.0.0.1:8123 store=x', sep='\\n', flush=True)"
)
FOREVER = "import signal; signal.pause()"


def launched(tmp_path: Path, *lines: str, environment: dict[str, str] | None = None) -> BrokerProcess:
    """Runs Python lines in the place of the broker; their arguments are the broker's command."""
    prefix = (sys.executable, "-c", "\n".join(lines))
    return BrokerProcess(["--port", "0"], tmp_path / "log", environment=environment, prefix=prefix)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_broker_is_ready_when_its_line_says_so(tmp_path: Path) -> None:
    with launched(tmp_path, READY, FOREVER) as broker:
        assert (broker.endpoint, broker.port) == ("", 0)
        assert broker.wait_ready(60) is broker.wait_ready(0)
        assert (broker.endpoint, broker.port) == ("http://127.0.0.1:8123", 8123)
        assert broker.alive
    assert is_gone(broker.pid)


def test_a_broker_that_ends_first_is_reported_with_its_code_and_log(tmp_path: Path) -> None:
    broker = launched(tmp_path, "import sys", "sys.exit('lakemq: the port is taken')")
    with pytest.raises(NotReady, match=r"exit code 1:\nlakemq: the port is taken") as refused:
        broker.wait_ready(60)
    assert refused.value.exit_code == 1
    assert refused.value.cause == "the port is taken"


def test_why_it_ended_is_read_of_this_run_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("lakemq: what a run before said\n")
    broker = launched(tmp_path, "import sys", "sys.exit('lakemq: the port is taken\\na line behind')")
    with pytest.raises(NotReady) as refused:
        broker.wait_ready(60)
    assert refused.value.cause == "the port is taken"
    silent = launched(tmp_path, "import os", "os._exit(3)")
    with pytest.raises(NotReady) as refused:
        silent.wait_ready(60)
    assert (refused.value.how, refused.value.cause) == ("exit code 3", "it said nothing")


def test_a_broker_that_is_late_is_killed(tmp_path: Path) -> None:
    broker = launched(tmp_path, FOREVER)
    with pytest.raises(NotReady, match="no sign of it in 0 s") as refused:
        broker.wait_ready(0)
    assert refused.value.exit_code is None
    assert is_gone(broker.pid)


def test_a_broker_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    broker = launched(tmp_path, deaf, READY, FOREVER).wait_ready(60)
    assert broker.stop(0.01) == -signal.SIGKILL
    assert is_gone(broker.pid)


def test_ends_have_their_codes(tmp_path: Path) -> None:
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    assert launched(tmp_path, polite, READY, FOREVER).wait_ready(60).stop() == 7
    killed = launched(tmp_path, READY, FOREVER).wait_ready(60)
    assert killed.kill() == killed.close() == killed.stop() == -signal.SIGKILL


def test_the_command_is_serve_with_its_arguments_and_environment(tmp_path: Path) -> None:
    show = "import os, sys; sys.stderr.write(repr((sys.argv[2:], os.environ['LAKEMQ_CLUSTER'])))"
    broker = launched(tmp_path, show, environment={"LAKEMQ_CLUSTER": "here"})
    assert broker.wait(60) == 0
    assert broker.log_end() == repr((["-m", "lakemq.cli", "serve", "--port", "0"], "here"))
    broker.close()
