"""The fast path of small sends: taken when a request is whole and plain, and only then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ingest_api.http.messages.targets import send_topic
from tests.support.memory_connection import connection

BODY = b'{"body":"x"}'
HEAD = b"POST /api/v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PLAIN = HEAD + LENGTH + b"\r\n" + BODY


async def written_at_once(path: Path, data: bytes) -> bytes:
    """Returns what a broker with asynchronous flush wrote before the event loop went on."""
    async with connection(path) as (_, protocol, wire):
        protocol.data_received(data)
        return wire.written


def test_a_whole_plain_send_is_answered_without_a_task(tmp_path: Path) -> None:
    found = asyncio.run(written_at_once(tmp_path, PLAIN * 3))
    assert found.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert found.count(b'"status":"SEND_OK"') == 3


@pytest.mark.parametrize(
    "data",
    [
        PLAIN[:-1],
        HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Connection: close\r\n\r\n" + BODY,
        HEAD + LENGTH + b"Content-Encoding: gzip\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 1\r\n\r\n{",
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"POST", b"PUT"),
        PLAIN.replace(b"/messages", b"/messages?results=full"),
        PLAIN.replace(b"/topics/t/", b"/topics/%74/"),
        PLAIN.replace(b"/topics/t/", b"/topics/../"),
    ],
)
def test_anything_else_takes_a_task(tmp_path: Path, data: bytes) -> None:
    assert asyncio.run(written_at_once(tmp_path, data)) == b""


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        (b"/api/v1/topics/orders/messages", "orders"),
        (b"/api/v1/topics/%RETRY%g/messages", None),
        (b"/api/v1/topics/orders/messages?x=1", None),
        (b"/api/v1/topics/a/b/messages", None),
        (b"/api/v1/topics//messages", None),
        (b"http://host/api/v1/topics/orders/messages", None),
    ],
)
def test_the_topic_of_a_plain_target(target: bytes, topic: str | None) -> None:
    assert send_topic(target) == topic


@pytest.mark.parametrize("first", [1, 100, 40_000, 65_536, 65_700])
def test_a_head_is_bounded_in_however_many_pieces_it_comes(tmp_path: Path, first: int) -> None:
    async def status(value: bytes) -> bytes:
        async with connection(tmp_path / str(len(value))) as (_, protocol, wire):
            head = HEAD + LENGTH + b"X: " + value + b"\r\n\r\n" + BODY
            protocol.data_received(head[:first])
            if not wire.closing:
                protocol.data_received(head[first:])
            await asyncio.gather(*protocol.tasks)
            return wire.written[:12]

    assert asyncio.run(status(b"x" * 65_000)) == b"HTTP/1.1 200"
    assert asyncio.run(status(b"x" * 65_536)) == b"HTTP/1.1 431"
    assert asyncio.run(status(b"x" * 110_000)) == b"HTTP/1.1 431"


def test_a_client_that_does_not_read_its_answers_gets_none_at_once(tmp_path: Path) -> None:
    """Its sends wait for it to read, so that what it is owed is bounded."""

    async def run() -> None:
        async with connection(tmp_path) as (_, protocol, wire):
            protocol.pause_writing()
            protocol.data_received(PLAIN)
            assert wire.written == b""
            protocol.resume_writing()
            await asyncio.gather(*protocol.tasks)
            protocol.data_received(PLAIN)
            assert wire.written.count(b'"status":"SEND_OK"') == 2

    asyncio.run(run())


def test_answers_that_nobody_reads_have_less_time_while_the_broker_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with connection(tmp_path) as (door, protocol, wire):
            http = door.settings.http
            wire.unread = 100_000
            now = 1000.0
            protocol.look_at_time(now)
            door.begin_stop()
            protocol.look_at_time(now + http.stop_timeout_s / 2 - 1)
            assert not wire.closing
            assert http.stop_timeout_s / 2 < http.write_timeout_s, "else this shows nothing"
            protocol.look_at_time(now + http.stop_timeout_s / 2)
            assert wire.closing

    asyncio.run(run())
