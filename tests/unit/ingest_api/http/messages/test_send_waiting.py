"""Sends over HTTP while their flush is under way: what they hold, and which do not wait for it.

Contract: a send that waits holds neither its body nor what the body reserved; a one-way send is answered
before its flush, on either path, and counts as every other.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ingest_api.http.messages.send import SendPath
from ingest_api.http.request.body import BodyReader, Deadlines
from ingest_api.http.responses.error_responses import ErrorResponses
from tests.support.held_flush import HeldSends, Payload, run

ONE_WAY = (b"prefer", b"respond-async")
JSON = (b"content-type", b"application/json")
MESSAGE = b'{"body":"x"}'


class Connection:
    """The connection of a send on the fast path."""

    client = ("127.0.0.1", 9)

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1

    def answer(self, head: bytes, body: bytes) -> None:
        self.answers.append(head + body)

    def close(self) -> None:
        raise AssertionError("a stored send was given up")


def path_of(sends: HeldSends) -> SendPath:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(30, loop.time, loop.call_at)
    bodies = BodyReader(deadlines, sends.admission, sends.limits.max_request_bytes)
    errors = ErrorResponses(sends.metrics, 60_000)
    return SendPath(sends.service, bodies, sends.metrics, errors, sends.limits)


async def post(sends: HeldSends, body: list[bytes], *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    """Posts a body, which is taken out of its list, on the slow path; returns what is sent back."""
    sent: list[dict[str, Any]] = []
    length = (b"content-length", b"%d" % len(body[0]))
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/topics/t/messages",
        "query_string": b"",
        "headers": [JSON, length, *headers],
        "client": Connection.client,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.pop(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await path_of(sends)(scope, receive, send, "t")
    return sent


@pytest.mark.parametrize("size", [500, 5_000, 100_000])
def test_a_send_that_waits_for_its_flush_holds_no_body_and_no_memory(tmp_path: Path, size: int) -> None:
    async def scenario(sends: HeldSends) -> None:
        body: list[bytes] = [Payload(b'{"body":"%s"}' % (b"x" * size))]
        length = len(body[0])
        Payload.freed.clear()
        request = asyncio.ensure_future(post(sends, body))
        await sends.flush.asked.wait()
        assert Payload.freed == [length]
        assert sends.admission.parsing_bytes == 0
        assert sends.admission.inflight == 1
        sends.flush.future.set_result(True)
        assert (await request)[0]["status"] == 200

    run(tmp_path, scenario)


@pytest.mark.parametrize("size", [10, 5_000])
def test_a_one_way_send_is_answered_before_its_flush_and_counted(tmp_path: Path, size: int) -> None:
    async def scenario(sends: HeldSends) -> None:
        start, *rest = await post(sends, [b'{"body":"%s"}' % (b"x" * size)], ONE_WAY)
        assert start["status"] == 202
        assert (b"preference-applied", b"respond-async") in start["headers"]
        assert b'"SEND_OK"' in b"".join(part["body"] for part in rest)
        assert not sends.flush.asked.is_set()
        assert sends.metrics.topics_in["t"].messages == 1
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_one_way_send_on_the_fast_path_is_answered_before_its_flush_and_counted(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        path = path_of(sends)
        one_way, waiting = Connection(), Connection()
        assert path.fast_path(one_way, "t", [JSON, ONE_WAY], MESSAGE)
        assert path.fast_path(waiting, "t", [JSON], MESSAGE)
        assert (one_way.waits, waiting.waits) == (0, 1)
        (answer,) = one_way.answers
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert b"preference-applied: respond-async" in answer
        assert b'"SEND_OK"' in answer
        assert sends.metrics.topics_in["t"].messages == 1, "what waits is counted with its answer"
        assert sends.admission.inflight == 1
        assert sends.flush.notify is not None
        sends.flush.notify(True)
        assert waiting.answers[0].startswith(b"HTTP/1.1 200 ")
        assert sends.metrics.topics_in["t"].messages == 2
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)
