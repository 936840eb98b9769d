"""What a client costs at most, each bound with its number: passed, and kept to."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.waiting import wait_until
from tests.support.wire import RawConnection, message, post, request

HEALTH = b"GET /healthz"
MIB = 1 << 20


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose times are short."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("strict"),
        flush="async",
        config="[http]\nhead_timeout_s = 0.5\nkeep_alive_s = 1\nwrite_timeout_s = 1.5\nmax_pipelined = 16\n"
        "[limits]\nmax_unsent_bytes = 4194304\nmax_query_bytes = 2500000\n",
    )
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def _nothing_is_held(shared_broker: BrokerProcess, strict: BrokerProcess) -> Iterator[None]:
    """What a test began and left is forgotten."""
    yield
    for broker in (shared_broker, strict):
        wait_until(Http(broker.endpoint).holds_nothing)


def test_headers_up_to_the_limit_are_taken_and_more_are_431(shared_broker: BrokerProcess) -> None:
    with RawConnection(shared_broker.port) as wire:
        assert wire.send(request(HEALTH, b"X: " + b"x" * 65_000)).answer().status == 200
        assert wire.send(request(HEALTH, *[b"X-%d: y" % n for n in range(255)])).answer().status == 200
    for lines in ([b"X: " + b"x" * 65_536], [b"X-%d: y" % n for n in range(256)], [b"X: " + b"x" * MIB]):
        with RawConnection(shared_broker.port) as wire:
            wire.send(request(HEALTH, *lines)).answer().problem(431, "HEADERS_TOO_LARGE")
            assert wire.closed()


def test_a_header_without_an_end_is_refused_in_time_and_costs_no_memory(broker: BrokerProcess) -> None:
    def resident_kib() -> int:
        status = Path(f"/proc/{broker.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    before = resident_kib()
    for start in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /"):
        with RawConnection(broker.port) as wire:
            wire.send(start)
            for _ in range(96):
                wire.send(b"x" * MIB)
            code = "HEADERS_TOO_LARGE" if b"X" in start else "TARGET_TOO_LONG"
            wire.answer().problem(431 if b"X" in start else 414, code)
    assert resident_kib() - before < 16 << 10


def test_a_target_up_to_the_limit_is_taken_and_more_is_414(shared_broker: BrokerProcess) -> None:
    with RawConnection(shared_broker.port) as wire:
        assert wire.send(request(b"GET /healthz?" + b"x" * 16_375)).answer().status == 200
        wire.send(request(b"GET /healthz?" + b"x" * 16_376)).answer().problem(414, "TARGET_TOO_LONG")
        assert wire.closed()


def test_trailers_and_chunk_extensions_are_bounded(shared_broker: BrokerProcess) -> None:
    head = request(b"POST /api/v1/topics/bounded/messages", b"Transfer-Encoding: chunked")
    for start in (b"1\r\nx\r\n0\r\nX: ", b"1;"):
        with RawConnection(shared_broker.port) as wire:
            wire.send(head + start)
            for _ in range(20):
                wire.send(b"x" * 65_536)
            wire.answer().problem(431, "HEADERS_TOO_LARGE")
    assert Http(shared_broker.endpoint).messages("bounded") == []


def test_a_head_has_its_time_however_it_drips(strict: BrokerProcess) -> None:
    started = time.monotonic()
    with RawConnection(strict.port) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\n")
        wire.sock.settimeout(0.05)
        while time.monotonic() - started < 20:
            wire.send(b"X: y\r\n")
            try:
                wire.closed()
                break
            except TimeoutError:
                continue
        wire.sock.settimeout(10)
        wire.answer().problem(408, "REQUEST_TIMEOUT")
        assert wire.closed()
    assert time.monotonic() - started >= 0.3


def test_an_idle_connection_is_closed(strict: BrokerProcess) -> None:
    with RawConnection(strict.port) as silent, RawConnection(strict.port) as used:
        assert used.send(request(HEALTH)).answer().status == 200
        assert silent.closed()
        assert used.closed()


def test_a_body_that_never_comes_for_what_is_answered_already_ends_the_connection(
    strict: BrokerProcess,
) -> None:
    with RawConnection(strict.port) as wire:
        assert wire.send(request(HEALTH, b"Content-Length: 1000000000")).answer().status == 200
        assert wire.closed()


def test_answers_that_nobody_reads_are_dropped(strict: BrokerProcess) -> None:
    """Each is 8 MiB; all together are bounded, others are refused, and all is free again in time."""
    http = Http(strict.endpoint)
    for _ in range(8):
        assert http.send("unread", b"x" * MIB, "image/png", {"X-LakeMQ-Queue-Id": "0"}).status == 200
    http.settle()
    pull = request(b"GET /api/v1/topics/unread/queues/0/messages?offset=0&max=8&max_bytes=16777216")
    silent = []
    refused = False
    deadline = time.monotonic() + 30
    while not refused and time.monotonic() < deadline:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", strict.port))
        sock.sendall(pull)
        silent.append(sock)
        answer = http.get("/topics/none/queues/0/messages", offset=0)
        refused = answer.status == 503
    answer.problem(503, "SYSTEM_BUSY")
    assert http.get("//healthz").status == 200
    while http.get("/topics/none/queues/0/messages", offset=0).status == 503:
        assert time.monotonic() < deadline
    for sock in silent:
        sock.settimeout(10)
        assert _received(sock) < 8 * MIB, "the end came"
        sock.close()


def _received(sock: socket.socket) -> int:
    """Returns how much comes until the connection is closed or cut."""
    received = 0
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65536):
            received += len(piece)
    return received


def test_a_client_that_reads_slowly_but_reads_gets_all(strict: BrokerProcess) -> None:
    http = Http(strict.endpoint)
    for _ in range(4):
        assert http.send("slowly", b"x" * MIB, "image/png", {"X-LakeMQ-Queue-Id": "0"}).status == 200
    http.settle()
    pull = request(
        b"GET /api/v1/topics/slowly/queues/0/messages?offset=0&max=4&max_bytes=16777216", b"Connection: close"
    )
    with socket.create_connection(("127.0.0.1", strict.port), timeout=20) as sock:
        sock.sendall(pull)
        received = 0
        started = time.monotonic()
        while piece := sock.recv(131_072):
            received += len(piece)
            while time.monotonic() - started < received / (3 * MIB):
                time.sleep(0.01)  # the rate of a slow client
    assert received > 4 * MIB
    assert time.monotonic() - started > 1


def test_requests_behind_a_held_one_are_bounded(strict: BrokerProcess) -> None:
    assert Http(strict.endpoint).put("/topics/held", {}).status in (200, 201)
    pull = request(b"GET /api/v1/topics/held/queues/0/messages?offset=0&wait_ms=300")
    with RawConnection(strict.port) as wire:
        found = wire.send(pull + request(HEALTH) * 17).answers()
    assert [answer.status for answer in found] == [200] * 17 + [429]
    found[-1].problem(429, "TOO_MANY_REQUESTS")


def test_connections_above_the_limit_are_refused_with_the_reason(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[http]\nmax_connections = 4\n")
    taken = [RawConnection(broker.port) for _ in range(4)]
    for wire in taken:
        assert wire.send(request(HEALTH)).answer().status == 200
    with RawConnection(broker.port) as more:
        problem = more.answer().problem(503, "SYSTEM_BUSY")
        assert problem["retryable"] is True
        assert more.closed()
    assert taken[0].send(request(HEALTH)).answer().status == 200
    for wire in taken:
        wire.sock.close()
    deadline = time.monotonic() + 20
    while True:
        with RawConnection(broker.port) as wire:
            if wire.send(request(HEALTH)).answer().status == 200:
                break
        assert time.monotonic() < deadline


def test_sends_whose_body_is_still_coming_take_nobodys_place(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[limits]\nmax_inflight_sends = 2\nmax_parsing_bytes = 1048576\n")
    slow = []
    for length in (b"4", b"4", b"4", b"60000000", b"60000000"):
        wire = RawConnection(broker.port)
        slow.append(
            wire.send(
                request(
                    b"POST /api/v1/topics/slow/messages",
                    b"Content-Type: application/x-ndjson",
                    b"Content-Length: " + length,
                    body=b"{",
                )
            )
        )
    http = Http(broker.endpoint)
    for _ in range(20):
        assert http.post("/topics/quick/messages", {"body": "x"}).status == 200
    assert http.send("quick", b'{"body":"%b"}' % (b"x" * 500_000), "application/json").status == 200
    for wire in slow:
        wire.sock.close()


def test_a_query_by_key_returns_the_newest_within_its_bytes(strict: BrokerProcess) -> None:
    http = Http(strict.endpoint)
    for n in range(5):
        key = {"X-LakeMQ-Keys": "k", "X-LakeMQ-Queue-Id": "0"}
        assert http.send("queried", b"%d" % n + b"x" * MIB, "image/png", key).status == 200
    http.settle()
    found = http.get("/topics/queried/messages", key="k").json["messages"]
    assert [message["body"][0] for message in found] == ["3", "4"]
    end = found[0]["store_timestamp"]
    older = http.get("/topics/queried/messages", key="k", end=end, max=1).json["messages"]
    assert len(older) == 1, "one is returned, however large"


def test_times_and_numbers_of_a_connection_are_settings(strict: BrokerProcess) -> None:
    with RawConnection(strict.port) as wire:
        for n in range(20):
            assert wire.send(post("settings", message(str(n)))).answer().status == 200
