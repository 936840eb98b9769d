"""The numbers of docs/http.md are settings: the last value that fits is taken, one more is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.wire import RawConnection, request

HEALTH = b"GET /healthz"
SMALL = """\
[http]
max_target_bytes = 256
max_header_bytes = 1024
max_headers = 8
[limits]
max_message_bytes = 1000
max_request_bytes = 4000
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that takes little."""
    broker = BrokerProcess(tmp_path_factory.mktemp("small"), flush="async", config=SMALL)
    yield broker
    broker.close()


def asked(broker: BrokerProcess, data: bytes) -> int:
    with RawConnection(broker.port) as wire:
        return wire.send(data).answer().status


def test_bytes_of_a_target(small: BrokerProcess) -> None:
    target = b"/healthz?" + b"x" * (256 - len(b"/healthz?"))
    assert asked(small, request(b"OPTIONS " + target)) == 204
    assert asked(small, request(b"OPTIONS " + target + b"x")) == 414


def test_bytes_and_number_of_headers(small: BrokerProcess) -> None:
    limit = 1024 - len(b"hostlocalhost") - len(b"x")
    assert asked(small, request(HEALTH, b"X: " + b"x" * limit)) == 200
    assert asked(small, request(HEALTH, b"X: " + b"x" * (limit + 1))) == 431
    lines = [b"X-%d: y" % n for n in range(7)]  # and Host
    assert asked(small, request(HEALTH, *lines)) == 200
    assert asked(small, request(HEALTH, *lines, b"X-7: y")) == 431


@pytest.mark.parametrize("kind", ["text/plain", "application/x-ndjson"])
def test_bytes_of_a_message(small: BrokerProcess, kind: str) -> None:
    def send(size: int) -> int:
        body = b"x" * size if kind == "text/plain" else b'{"body":"%b"}' % (b"x" * size)
        return Http(small.endpoint).send("sized", body, kind).status

    before = len(Http(small.endpoint).messages("sized"))
    assert send(1000) == 200
    assert send(1001) == 413
    assert len(Http(small.endpoint).messages("sized")) == before + 1


def test_bytes_of_a_request_before_and_after_it_is_expanded(small: BrokerProcess) -> None:
    http = Http(small.endpoint)
    kind = "application/x-ndjson"
    line = b'{"body":"%b"}\n' % (b"x" * 87)
    assert len(line) == 99
    whole = line * 40 + b" " * 40
    assert len(whole) == 4000
    assert http.send("requested", whole, kind).status == 200
    assert http.send("requested", whole + b" ", kind).status == 413
    packed = {"Content-Encoding": "gzip"}
    assert http.send("requested", gzip.compress(whole), kind, packed).status == 200
    assert http.send("requested", gzip.compress(whole + b" "), kind, packed).status == 413


def test_connections_far_above_the_limit_are_closed_without_a_word(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[http]\nmax_connections = 1\n")
    with RawConnection(broker.port) as first:
        assert first.send(request(HEALTH)).answer().status == 200
        more = [RawConnection(broker.port) for _ in range(60)]
        refused = 0
        for wire in more:
            if not wire.closed():
                wire.answer().problem(503, "SYSTEM_BUSY")
                refused += 1
        assert 16 <= refused < 60
        assert first.send(request(HEALTH)).answer().status == 200
        for wire in more:
            wire.sock.close()
