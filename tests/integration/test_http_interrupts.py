"""Ctrl-C ends a broker with a closed store and without a stack: while it starts, and twice while it stops."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakemq.broker_process import BrokerProcess, NotReady
from tests.support.broker_process import SMALL_FILES
from tests.support.waiting import wait_until
from tests.support.wire import RawConnection, request

WAIT_S = 60


def launched(tmp_path: Path) -> BrokerProcess:
    config = tmp_path / "broker.toml"
    config.write_text(SMALL_FILES)
    arguments = ["--config", str(config), "--port", "0", "--store", str(tmp_path / "store")]
    return BrokerProcess(arguments, tmp_path / "broker.log")


def wait_for(broker: BrokerProcess, words: str) -> None:
    wait_until(lambda: words in broker.log.read_text(), WAIT_S, f"the broker does not say {words!r}")


def was_ready(broker: BrokerProcess) -> bool:
    try:
        broker.wait_ready(0)
    except NotReady:
        return False
    return True


@pytest.mark.parametrize("words", ["limit of open files", "store open"])
def test_ctrl_c_while_a_broker_starts(tmp_path: Path, words: str) -> None:
    with launched(tmp_path) as broker:
        wait_for(broker, words)
        broker.send_signal(signal.SIGINT)
        code = broker.wait(WAIT_S)
        assert code == (0 if was_ready(broker) else 130)
    log = broker.log.read_text()
    assert "Traceback" not in log
    assert "Error" not in log
    assert not (tmp_path / "store" / "abort").exists(), "the store was closed"


def test_a_second_ctrl_c_waits_for_nobody_and_closes_the_store(tmp_path: Path) -> None:
    with launched(tmp_path) as broker:
        port = broker.wait_ready().port
        head = request(b"POST /api/v1/topics/held/messages", b"Content-Length: 9", b"Expect: 100-continue")
        with RawConnection(port) as held:
            assert held.send(head).answer().status == 100, "a request is being read"
            broker.send_signal(signal.SIGINT)
            wait_for(broker, "stopping")
            broker.send_signal(signal.SIGINT)
            assert broker.wait(WAIT_S) == 0
    log = broker.log.read_text()
    assert "Traceback" not in log
    assert "store closed" in log
    assert not (tmp_path / "store" / "abort").exists()
