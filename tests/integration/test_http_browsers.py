"""What a page in a browser can do to a broker that its user reaches: nothing, unless it is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.wire import Answer, RawConnection, request

PAGE = b"https://console.example.com"
TEXT = b"Content-Type: text/plain"
SEND = b"POST /api/v1/topics/from_a_page/messages"


def ask(broker: BrokerProcess, start: bytes, *lines: bytes, **named: bytes) -> Answer:
    with RawConnection(broker.port) as wire:
        return wire.send(request(start, *lines, **named)).answer()


def form(kind: bytes, *lines: bytes) -> tuple[bytes, ...]:
    return (b"Content-Length: 5", b"Content-Type: " + kind, *lines)


@pytest.mark.parametrize(
    "lines",
    [
        form(b"text/plain", b"Origin: https://evil.example"),
        form(b"application/x-www-form-urlencoded", b"Origin: null"),
        form(b"text/plain", b"Sec-Fetch-Site: cross-site"),
        form(b"multipart/form-data", b"Sec-Fetch-Site: same-site", b"Sec-Fetch-Mode: navigate"),
    ],
)
def test_a_send_from_another_site_is_refused(shared_broker: BrokerProcess, lines: tuple[bytes, ...]) -> None:
    ask(shared_broker, SEND, *lines, body=b"hello").problem(403, "NO_PERMISSION")
    assert Http(shared_broker.endpoint).messages("from_a_page") == []


def test_a_name_that_was_made_to_lead_here_is_refused(shared_broker: BrokerProcess) -> None:
    for start in (SEND, b"GET /api/v1/topics", b"GET /healthz", b"DELETE /api/v1/topics/x", b"GET /docs"):
        ask(shared_broker, start, host=b"evil.example").problem(403, "NO_PERMISSION")
    ask(shared_broker, b"GET http://evil.example/healthz").problem(403, "NO_PERMISSION")
    with RawConnection(shared_broker.port) as wire:
        wire.send(request(b"GET /healthz", host=None)).answer().problem(400, "MALFORMED_REQUEST")
    with RawConnection(shared_broker.port) as wire:
        wire.send(request(b"GET /healthz", b"Host: localhost")).answer().problem(400, "MALFORMED_REQUEST")


def test_the_brokers_own_pages_may_ask(shared_broker: BrokerProcess) -> None:
    own = shared_broker.endpoint.encode()
    lines = form(b"text/plain", b"Origin: " + own, b"Sec-Fetch-Site: same-origin")
    host = own.removeprefix(b"http://")
    send = b"POST /api/v1/topics/own_page/messages"
    assert ask(shared_broker, send, *lines, host=host, body=b"hello").status == 200


def test_an_allowed_name_and_an_allowed_page(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(
        arguments=("--allowed-host", "broker-a.internal"),
        config=f'[http]\nallowed_origins = ["{PAGE.decode()}"]\n',
    )
    assert ask(broker, b"GET /healthz", host=b"broker-a.internal:1").status == 200
    origin = b"Origin: " + PAGE
    wanted = b"Access-Control-Request-Method: POST", b"Access-Control-Request-Headers: content-type"
    before = ask(broker, b"OPTIONS /api/v1/topics/page/messages", origin, *wanted)
    assert before.status == 204
    assert before.headers["access-control-allow-origin"] == PAGE.decode()
    assert "POST" in before.headers["access-control-allow-methods"]
    assert before.headers["access-control-allow-headers"] == "content-type"
    for start in (b"POST /api/v1/topics/page/messages", b"POST /api/v1/topics/page/messages?results=full"):
        answer = ask(
            broker, start, *form(b"text/plain", origin, b"Sec-Fetch-Site: cross-site"), body=b"hello"
        )
        assert answer.headers.get("access-control-allow-origin") == PAGE.decode(), answer
    answer = ask(broker, b"GET /api/v1/topics/none", origin)
    answer.problem(404, "TOPIC_NOT_EXIST")
    assert answer.headers["access-control-allow-origin"] == PAGE.decode()
    assert "access-control-allow-origin" not in ask(broker, b"GET /healthz").headers
    ask(broker, b"GET /healthz", b"Origin: https://evil.example").problem(403, "NO_PERMISSION")
