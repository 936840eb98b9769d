"""A stop in the middle of things: in time, with an answer for everybody, and without a stack."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http
from tests.support.wire import Answer, RawConnection, request

MIB = 1 << 20
SEND = b"POST /api/v1/topics/halfway/messages"


def stopped(broker: BrokerProcess, *begun: RawConnection) -> tuple[list[list[Answer]], float]:
    """Stops a broker and returns what each connection received, and the seconds it took."""
    started = time.monotonic()
    status: list[int] = []
    stopping = threading.Thread(target=lambda: status.append(broker.stop()))
    stopping.start()
    answers = [wire.answers() for wire in begun]
    stopping.join(30)
    assert status == [0]
    log = broker.log()
    assert "Traceback" not in log
    assert "Exception" not in log
    assert "store closed" in log
    return answers, time.monotonic() - started


@pytest.mark.parametrize(
    "start",
    [
        request(SEND, b"Content-Length: 10", body=b"half"),
        request(SEND, b"Content-Length: 1000000", body=b"half"),
        request(SEND, b"Transfer-Encoding: chunked", body=b"5\r\nha"),
        request(b"PUT /api/v1/topics/halfway", b"Content-Length: 10", body=b"{"),
        b"POST /api/v1/topics/halfway/messages HTTP/1.1\r\nHost: loc",
    ],
)
def test_a_half_sent_request_is_refused_in_time(
    start_broker: Callable[..., BrokerProcess], start: bytes
) -> None:
    broker = start_broker(config="[http]\nstop_timeout_s = 4\n")
    with RawConnection(broker.port) as wire:
        wire.send(request(b"GET /healthz")).answer()
        wire.send(start)
        if b"\r\n\r\n" in start:
            _until_read(broker)
        (found,), took = stopped(broker, wire)
    assert len(found) == 1
    assert found[0].problem(503, "SERVICE_NOT_AVAILABLE")["retryable"] is True
    assert took < 4 + 10
    broker.start()
    assert Http(broker.endpoint).messages("halfway") == []


def test_a_body_that_comes_in_time_is_stored_while_the_broker_stops(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[http]\nstop_timeout_s = 60\n")
    with RawConnection(broker.port, timeout_s=60) as wire:
        wire.send(request(SEND, b"Content-Length: 4", body=b"ha"))
        _until_read(broker)
        rest = threading.Timer(0.5, wire.send, (b"lf",))
        rest.start()
        (found,), _ = stopped(broker, wire)
        rest.join()
    assert len(found) == 1
    broker.start()
    stored = [m["body"] for m in Http(broker.endpoint).messages("halfway")]
    assert stored == (["half"] if found[0].status == 200 else [])


@pytest.mark.parametrize("query", [b"", b"?results=full"], ids=["on the fast path", "on the slow path"])
def test_sends_that_wait_for_their_flush_are_answered_before_the_store_closes(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, query: bytes
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = start_broker(config="[http]\nstop_timeout_s = 60\n", environment=disk.environment)
    sent = request(
        SEND + query, b"Content-Type: application/json", b"Content-Length: 12", body=b'{"body":"x"}'
    )
    with RawConnection(broker.port, timeout_s=60) as one, RawConnection(broker.port, timeout_s=60) as other:
        disk.slow_down()
        one.send(sent)
        other.send(sent)
        _until_read(broker)
        answers, _ = stopped(broker, one, other)
    disk.recover()
    assert [[answer.status for answer in found] for found in answers] == [[200], [200]]
    broker.start()
    assert [m["body"] for m in Http(broker.endpoint).messages("halfway")] == ["x", "x"]


def test_an_answer_that_nobody_reads_does_not_hold_up_a_stop(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[http]\nstop_timeout_s = 2\n")
    http = Http(broker.endpoint)
    for _ in range(8):
        assert http.send("unread", b"x" * MIB, "image/png", {"X-LakeMQ-Queue-Id": "0"}).status == 200
    http.settle()
    with RawConnection(broker.port) as wire:
        wire.send(request(b"GET /api/v1/topics/unread/queues/0/messages?offset=0&max=8&max_bytes=16777216"))
        assert wire.sock.recv(1)
        _, took = stopped(broker)
    assert took < 2 + 10


def _until_read(broker: BrokerProcess) -> None:
    """Returns when the broker has taken what was sent so far: it answers what was sent later."""
    for _ in range(2):
        assert Http(broker.endpoint).get("//healthz").status == 200
