"""A stop of `lakemq serve`: which signals ask for it, what is finished, what it leaves."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http


def test_a_graceful_stop_exits_with_0_and_leaves_a_clean_store(broker: BrokerProcess) -> None:
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "x"}).status == 200
    assert broker.stop() == 0
    assert not (broker.store_path / "abort").exists()
    broker.start()
    assert http.get("//readyz").json["recovery"]["clean"] is True
    assert len(http.messages("t")) == 1


def test_a_stop_finishes_what_is_in_flight(start_broker: Callable[..., BrokerProcess]) -> None:
    """Sends that were accepted before SIGTERM are answered, and what was answered is there."""
    broker = start_broker()
    http = Http(broker.endpoint)
    http.post("/topics/t/messages", {"body": "first"})
    acknowledged: list[str] = []
    stopping = threading.Event()

    def write(worker: int) -> None:
        own = Http(broker.endpoint)
        for n in range(100_000):
            body = f"{worker}-{n}"
            try:
                if own.post("/topics/t/messages", {"body": body}).status == 200:
                    acknowledged.append(body)
            except Exception:  # noqa: BLE001 - any broken connection ends this writer; that is the point
                return
            if n == 20:
                stopping.set()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    assert stopping.wait(20)
    assert broker.stop() == 0
    for writer in writers:
        writer.join(20)
    broker.start()
    stored = [m["body"] for m in http.messages("t")]
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))


def started_with(start_broker: Callable[..., BrokerProcess], on_hangup: signal.Handlers) -> BrokerProcess:
    """A broker whose SIGHUP is as it is given: tests that run in the background have it ignored."""
    before = signal.signal(signal.SIGHUP, on_hangup)
    try:
        return start_broker()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_asks_for_the_end_is_a_clean_stop(
    start_broker: Callable[..., BrokerProcess], number: signal.Signals
) -> None:
    broker = started_with(start_broker, signal.SIG_DFL)
    http = Http(broker.endpoint)
    http.post("/topics/t/messages", {"body": "x"})
    assert broker.stop(number) == 0
    broker.start()
    assert http.get("//readyz").json["recovery"]["clean"] is True


def test_a_broker_that_is_to_outlive_its_terminal_does(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = started_with(start_broker, signal.SIG_IGN)
    os.kill(broker.pid, signal.SIGHUP)
    assert Http(broker.endpoint).post("/topics/t/messages", {"body": "x"}).status == 200
    assert broker.stop() == 0


def test_a_store_that_was_removed_is_said_in_one_line_at_the_end(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    assert Http(broker.endpoint).post("/topics/t/messages", {"body": "x"}).status == 200
    broker.store_path.rename(broker.store_path.with_name("elsewhere"))  # in one step, whatever it writes
    assert broker.stop() == 1
    log = broker.log()
    assert "the store is not closed, its next start recovers it" in log
    # The broker looks for its log once a second: it is found missing then, or by what the stop writes.
    last = log.splitlines()[-1]
    assert last.startswith(("lakemq: SYSTEM_ERROR: ", "lakemq: STORE_POISONED: "))
    assert str(broker.store_path) in log.splitlines()[-2]
    assert "Traceback" not in log
