"""Where a request ends: no byte of a body is ever executed, and answers keep the order of their requests.

The contract: whatever a head says, what follows it is the body it announces, or the connection ends. The
refusal of bytes that are no request comes behind the answers of the requests before them.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http
from tests.support.waiting import wait_until
from tests.support.wire import Answer, RawConnection, message, post, request

DELETE = request(b"DELETE /api/v1/topics/victim")
GARBAGE = b"\x16\x03\x01 this is no request\r\n\r\n"
CLOSE = b"Connection: close"
HEALTH = b"GET /healthz"


@pytest.fixture
def victim(shared_broker: BrokerProcess) -> Iterator[Http]:
    """A topic that no request here deletes; nothing of a request is held behind the test."""
    http = Http(shared_broker.endpoint)
    assert http.put("/topics/victim", {}).status in (200, 201)
    yield http
    wait_until(http.holds_nothing)


def exchange(broker: BrokerProcess, *pieces: bytes) -> list[Answer]:
    """Sends pieces in segments of their own, says that this is all, and returns the answers."""
    with RawConnection(broker.port) as wire:
        for piece in pieces:
            wire.send(piece)
        return wire.half_close().answers()


UPGRADES = [
    pytest.param((b"Connection: Upgrade", b"Upgrade: websocket"), id="websocket"),
    pytest.param((b"Connection: Upgrade", b"Upgrade: h2c, websocket"), id="a-list"),
    pytest.param((b"Connection: keep-alive, upgrade", b"Upgrade: TLS/1.0"), id="tls"),
    pytest.param((b"Upgrade: x", b"Connection: Upgrade"), id="other-order"),
]


@pytest.mark.parametrize("lines", UPGRADES)
@pytest.mark.parametrize("start", [b"POST /api/v1/topics/smuggled/messages", HEALTH])
@pytest.mark.parametrize("apart", [True, False])
def test_an_upgrade_is_refused_and_what_follows_is_not_executed(
    shared_broker: BrokerProcess, victim: Http, start: bytes, lines: tuple[bytes, ...], apart: bool
) -> None:
    head = request(start, *lines, b"Content-Length: %d" % len(DELETE))
    with RawConnection(shared_broker.port) as wire:
        wire.send(head if apart else head + DELETE)
        wire.answer().problem(400, "MALFORMED_REQUEST")
        wire.send(DELETE)
        assert wire.closed()
    assert victim.get("/topics/victim").status == 200


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("start", [b"POST /api/v1/topics/offered/messages", HEALTH])
def test_an_offer_of_h2c_is_ignored_and_the_body_is_the_body(
    shared_broker: BrokerProcess, victim: Http, start: bytes, apart: bool
) -> None:
    lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    head = request(start, *lines, b"Content-Length: %d" % len(DELETE))
    with RawConnection(shared_broker.port) as wire:
        if apart:
            wire.send(head).send(DELETE)
        else:
            wire.send(head + DELETE)
        assert wire.answer().status == 200
        assert wire.send(request(HEALTH)).answer().status == 200, "the connection goes on"
    assert victim.get("/topics/victim").status == 200
    if start.startswith(b"POST"):
        assert victim.messages("offered")[-1]["body"].encode() == DELETE


def test_an_offer_of_h2c_is_ignored_wherever_it_is_cut(shared_broker: BrokerProcess) -> None:
    body = message("cut")
    whole = post("cut", body, b"Connection: Upgrade", b"Upgrade: h2c") + request(HEALTH, CLOSE)
    for cut in range(1, len(whole)):
        with RawConnection(shared_broker.port) as wire:
            wire.send(whole[:cut]).send(whole[cut:])
            assert [answer.status for answer in wire.answers()] == [200, 200], cut
    assert len(Http(shared_broker.endpoint).messages("cut")) == len(whole) - 1


def test_a_chunked_body_behind_an_offer_of_h2c_is_read(shared_broker: BrokerProcess) -> None:
    body = message("chunked")
    head = post("h2c_chunked", b"", b"Connection: Upgrade", b"Upgrade: h2c")
    head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    found = exchange(shared_broker, head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert [answer.status for answer in found] == [200]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_with_http2_sends(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * 300_000)
    for data in ("small", f"@{large}"):
        url = f"{shared_broker.endpoint}/api/v1/topics/curl/messages"
        done = subprocess.run(
            ["curl", "--http2", "--silent", "--show-error", "--max-time", "30", "--data-binary", data, url],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert '"status":"SEND_OK"' in done.stdout, done.stdout


def test_connect_is_refused(shared_broker: BrokerProcess, victim: Http) -> None:
    with RawConnection(shared_broker.port) as wire:
        wire.send(request(b"CONNECT localhost:1") + DELETE)
        wire.answer().problem(400, "MALFORMED_REQUEST")
        assert wire.closed()
    assert victim.get("/topics/victim").status == 200


CHUNKED = b"Transfer-Encoding: chunked"
START = b"POST /api/v1/topics/framed/messages"
FRAMES = {
    "both lengths": request(START, b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"),
    "both lengths, other order": request(START, CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n"),
    "two lengths": request(START, b"Content-Length: 5", b"Content-Length: 5", body=b"hello"),
    "two values": request(START, b"Content-Length: 5, 5", body=b"hello"),
    "a sign": request(START, b"Content-Length: +5", body=b"hello"),
    "no length": request(START, b"Content-Length:", body=b"hello"),
    "a length beyond 64 bits": request(START, b"Content-Length: 18446744073709551617", body=b"h"),
    "a folded header": request(START, b"Content-Length: 5\r\n\t6", body=b"hello"),
    "a space before the colon": request(START, b"Content-Length : 5", body=b"hello"),
    "chunked not last": request(START, b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "chunked in HTTP/1.0": request(START, CHUNKED, body=b"0\r\n\r\n", version=b"HTTP/1.0"),
    "a chunk with a wrong end": request(START, CHUNKED, body=b"5\r\nhelloX0\r\n\r\n"),
    "a chunk without CR": request(START, CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"),
    "a chunk of too many": request(START, CHUNKED, body=b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    "a chunk extension with LF": request(START, CHUNKED, body=b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "a length in a trailer": request(
        START, CHUNKED, body=b"5\r\nhello\r\n0\r\nContent-Length: 4\r\n\r\n"
    ),
    "lines that end with LF": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "a NUL": request(HEALTH, b"X: a\0b"),
    "a CR": request(HEALTH, b"X: a\rb: c"),
    "no HTTP": GARBAGE,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a target that is none": request(b"GET healthz"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_can_be_read_in_two_ways_ends_the_connection(
    shared_broker: BrokerProcess, victim: Http, name: str
) -> None:
    found = exchange(shared_broker, FRAMES[name] + DELETE)
    assert len(found) == 1, found
    found[0].problem(400, "MALFORMED_REQUEST")
    assert found[0].headers["connection"] == "close"
    assert victim.get("/topics/victim").status == 200
    assert victim.messages("framed") == []


@pytest.mark.parametrize(
    "coding", [b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked", b"xchunked", b"identity"]
)
def test_a_transfer_coding_that_is_not_undone_here_is_refused(
    shared_broker: BrokerProcess, victim: Http, coding: bytes
) -> None:
    found = exchange(
        shared_broker, request(START, b"Transfer-Encoding: " + coding, body=b"0\r\n\r\n") + DELETE
    )
    assert len(found) == 1
    found[0].problem(501, "NOT_IMPLEMENTED")
    assert victim.get("/topics/victim").status == 200


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9"])
def test_another_version_is_refused(shared_broker: BrokerProcess, version: bytes) -> None:
    (found,) = exchange(shared_broker, request(HEALTH, version=version))
    found.problem(505, "HTTP_VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize("version", [b"HTTP/1.2", b"HTTP/3.0", b"HTTP/1.x", b"HTTQ/1.1"])
def test_what_is_no_version_of_http_is_malformed(shared_broker: BrokerProcess, version: bytes) -> None:
    (found,) = exchange(shared_broker, request(HEALTH, version=version))
    found.problem(400, "MALFORMED_REQUEST")


def test_trailers_are_not_headers(shared_broker: BrokerProcess) -> None:
    """A trailer cannot give a send a key, or any other meaning."""
    http = Http(shared_broker.endpoint)
    body = b"5\r\nhello\r\n0\r\nIdempotency-Key: k\r\nX-LakeMQ-Tags: t\r\n\r\n"
    data = request(b"POST /api/v1/topics/trailed/messages", b"Content-Type: text/plain", CHUNKED, body=body)
    assert [answer.status for answer in exchange(shared_broker, data + data)] == [200, 200]
    found = http.messages("trailed")
    assert [(m["body"], m["tags"]) for m in found] == [("hello", None)] * 2


def test_what_follows_the_last_request_is_not_executed(shared_broker: BrokerProcess, victim: Http) -> None:
    for last in (
        request(HEALTH, CLOSE),
        post("last", message("x"), CLOSE),
        request(HEALTH, version=b"HTTP/1.0"),
        request(HEALTH, b"Connection: keep-alive", version=b"HTTP/1.0"),
    ):
        for pieces in ([last + DELETE], [last, DELETE], [last + GARBAGE]):
            assert [answer.status for answer in exchange(shared_broker, *pieces)] == [200]
    assert victim.get("/topics/victim").status == 200


def test_a_percent_that_escapes_nothing_is_refused(shared_broker: BrokerProcess) -> None:
    for path in (b"/api/v1/topics/%zz", b"/api/v1/topics/a%", b"/api/v1/topics/%4/messages"):
        (found,) = exchange(shared_broker, request(b"GET " + path))
        found.problem(400, "MALFORMED_REQUEST")


def test_garbage_behind_a_stored_send_is_answered_behind_it(tmp_path: Path) -> None:
    """The send waits for its flush when the garbage has been seen already."""
    disk = FaultyDisk(tmp_path)
    broker = BrokerProcess(tmp_path / "broker", environment=disk.environment)
    try:
        disk.slow_down()
        first, last = exchange(broker, post("ordered", message("stored")) + GARBAGE)
        assert (first.status, first.json["queue_offset"]) == (200, 0)
        last.problem(400, "MALFORMED_REQUEST")
        several = post("ordered", message("a")) + request(HEALTH) + post("ordered", message("b"))
        found = exchange(broker, several + FRAMES["a chunk with a wrong end"])
        assert [answer.status for answer in found] == [200, 200, 200, 400]
        assert [found[0].json["queue_offset"], found[2].json["queue_offset"]] == [1, 2]
    finally:
        disk.recover()
        broker.close()


def test_a_client_that_closes_its_side_gets_its_answers(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    broker = BrokerProcess(tmp_path / "broker", environment=disk.environment)
    try:
        disk.slow_down()
        (one,) = exchange(broker, post("half", message("one")))
        assert one.json["queue_offset"] == 0
        found = exchange(broker, b"".join(post("half", message(str(n))) for n in range(5)) + request(HEALTH))
        assert [answer.status for answer in found] == [200] * 6
        body = b'{"body":"%b","queue_id":0}' % (b"x" * 400_000)
        (large,) = exchange(broker, post("half", body))
        assert large.json["queue_offset"] == 6
    finally:
        disk.recover()
        broker.close()


def test_a_held_pull_of_a_client_that_closes_its_side_is_answered_at_once(
    shared_broker: BrokerProcess,
) -> None:
    assert Http(shared_broker.endpoint).put("/topics/held", {}).status in (200, 201)
    pull = request(b"GET /api/v1/topics/held/queues/0/messages?offset=0&wait_ms=60000")
    found = exchange(shared_broker, pull + request(HEALTH))
    assert [answer.status for answer in found] == [200, 200]
    assert found[0].json["status"] == "NO_NEW_MSG"


def test_a_request_that_the_client_breaks_off_is_refused_and_stores_nothing(
    shared_broker: BrokerProcess,
) -> None:
    whole = post("broken_off", message("never"))
    for cut in (10, len(whole) - 5):
        (found,) = exchange(shared_broker, whole[:cut])
        found.problem(400, "MALFORMED_REQUEST")
    assert Http(shared_broker.endpoint).messages("broken_off") == []


def test_nobody_is_asked_for_a_body_behind_the_refusal_of_it(broker: BrokerProcess) -> None:
    """The request's task begins when its connection has had its last answer already."""
    for start in (START, b"PUT /api/v1/groups/g"):
        data = request(start, CHUNKED, b"Expect: 100-continue", body=b"no chunk\r\n")
        (found,) = exchange(broker, data)
        found.problem(400, "MALFORMED_REQUEST")
        with RawConnection(broker.port) as wire:
            wire.send(request(start, b"Content-Length: 5", b"Expect: 100-continue")).half_close()
            assert [answer.status for answer in wire.answers() if answer.status != 100] == [400]
    assert Http(broker.endpoint).get("//healthz").status == 200
    assert "Traceback" not in broker.log()


def test_malformed_requests_are_logged_with_the_client_at_a_bounded_rate(broker: BrokerProcess) -> None:
    for _ in range(200):
        exchange(broker, GARBAGE)
    lines = [line for line in broker.log().splitlines() if "MALFORMED_REQUEST" in line]
    assert lines
    assert all("client=127.0.0.1" in line and "request_id=" in line for line in lines)
    assert len(broker.log().splitlines()) < 200, "some of them were left out"


def test_a_stream_of_requests_is_the_same_however_it_is_cut(shared_broker: BrokerProcess) -> None:
    """Fast path and slow path, chunks, an offer of h2c, a query string, a refusal, and garbage at last."""
    chunked = request(
        b"POST /api/v1/topics/cuts/messages", b"Content-Type: application/json", CHUNKED,
        body=b"4;ext=1\r\n{\"bo\r\n%x\r\ndy\":\"c\",\"queue_id\":0}\r\n0\r\nX: y\r\n\r\n" % 21,
    )  # fmt: skip
    stream = (
        post("cuts", message("a"))
        + chunked
        + post("cuts", message("b"), b"Connection: Upgrade", b"Upgrade: h2c")
        + request(
            b"POST /api/v1/topics/cuts/messages?results=full",
            b"Content-Length: %d" % len(DELETE),
            body=DELETE,
        )
        + post("cuts", b"{broken")
        + request(b"GET /healthz", b"Content-Length: %d" % len(DELETE), body=DELETE)
        + request(
            b"PUT /api/v1/topics/cuts", b"Content-Type: application/json", b"Content-Length: 2", body=b"{}"
        )
        + post("cuts", message("d"))
        + GARBAGE
    )
    http = Http(shared_broker.endpoint)
    assert http.put("/topics/victim", {}).status in (200, 201)
    expected = [200, 200, 200, 200, 400, 200, 200, 200, 400]
    dice = random.Random(7)
    cuts = [[at] for at in range(1, len(stream), 5)]
    cuts += [sorted(dice.sample(range(1, len(stream)), 6)) for _ in range(60)]
    for places in cuts:
        pieces = [stream[a:b] for a, b in pairwise([0, *places, len(stream)])]
        assert [answer.status for answer in exchange(shared_broker, *pieces)] == expected, places
    with RawConnection(shared_broker.port) as wire:
        for at in range(len(stream)):
            wire.send(stream[at : at + 1])
        assert [answer.status for answer in wire.half_close().answers()] == expected
    assert http.get("/topics/victim").status == 200
    assert len(http.messages("cuts")) == 5 * (len(cuts) + 1)
