"""What of a request reaches its message, its answer and the log, on the fast path as on the slow one."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ingest_api.broker.pull_service import PullRequest
from store_native.errors import Closed
from tests.support.held_flush import HeldSends
from tests.support.held_flush import run as run_held
from tests.support.waiting import wait_until_async
from tests.unit.ingest_api.http.messages import test_send_answers as answers
from tests.unit.ingest_api.http.messages.test_send_answers import (
    EXPECT,
    JSON,
    KEEP,
    MOST,
    TEXT,
    Posting,
    fast,
    length,
    run,
)
from tests.unit.ingest_api.http.messages.test_send_waiting import post

CLIENT = ("10.1.2.3", 77)
QUEUE = (b"x-lakemq-queue-id", b"0")
TAGGED = (b"x-lakemq-tags", b"paid")


class Connection(answers.Connection):
    client = CLIENT


async def answered(connection: Connection) -> None:
    await wait_until_async(lambda: bool(connection.answers))


async def all_stored(posting: Posting) -> list[dict[str, Any]]:
    request = PullRequest("t", 0, 0, False, 1_000, 1 << 22, 0, "*", "", None, None)
    _, messages = await posting.broker.pull.pull(request)
    stored: list[dict[str, Any]] = json.loads(messages)
    return stored


async def posted(posting: Posting, body: bytes, *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    """Posts on the slow path from another host; returns what is sent back."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "client": CLIENT}
    await posting.path({**scope, "headers": list(headers)}, receive, send, "t")
    return sent


def test_a_message_says_which_host_sent_it_and_has_the_requests_fields(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        ways = 0
        for headers in ((JSON,), (TEXT, QUEUE, TAGGED), (JSON, (b"idempotency-key", b"k"))):
            body = KEEP if headers[0] is JSON else b"raw"
            connection = Connection()
            assert posting.path.fast_path(connection, "t", list(headers), body)
            await answered(connection)
            ways += 1
        for headers in ((JSON,), (TEXT, QUEUE, TAGGED)):
            body = KEEP if headers[0] is JSON else b"raw"
            assert (await posted(posting, body, *headers))[0]["status"] == 200
            ways += 1
        stored = await all_stored(posting)
        assert [message["born_host"] for message in stored] == ["10.1.2.3:77"] * ways
        assert [message.get("tags") or "" for message in stored] == ["", "paid", "", "", "paid"]

    run(tmp_path, scenario)


def test_the_fast_path_answers_by_queues_not_message_by_message(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        connection = Connection()
        two = b'{"messages":[{"body":"x","queue_id":0},{"body":"y","queue_id":0}]}'
        assert posting.path.fast_path(connection, "t", [JSON, (b"idempotency-key", b"k")], two)
        await answered(connection)
        answer = json.loads(connection.answers[0][connection.answers[0].index(b"{") :])
        assert not answer.get("results")

    run(tmp_path, scenario)


def test_a_small_body_needs_no_thread(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        assert (await posting.post([KEEP], JSON))[0] == 200

    run(tmp_path, scenario, send_queue_wait_s=0)


def test_a_connection_whose_body_was_not_read_is_closed(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        start, *_ = await posted(posting, b"", JSON, EXPECT, length(MOST + 1))
        assert start["status"] == 413
        assert (b"connection", b"close") in start["headers"]
        start, *_ = await posted(posting, b"{", JSON)
        assert start["status"] == 400
        assert (b"connection", b"close") not in start["headers"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("size", [500, 5_000])
def test_a_send_whose_flush_is_late_is_accepted_and_its_wait_is_measured(tmp_path: Path, size: int) -> None:
    async def scenario(sends: HeldSends) -> None:
        request = asyncio.ensure_future(post(sends, [b'{"body":"%s"}' % (b"x" * size)]))
        await sends.flush.asked.wait()
        await asyncio.sleep(0.02)  # the time that is measured
        sends.flush.future.set_result(False)
        start, *rest = await request
        assert start["status"] == 202
        assert b'"FLUSH_DISK_TIMEOUT"' in b"".join(part["body"] for part in rest)
        taken = sends.metrics.latency_ms["send" if size == 500 else "bulk_send"]
        assert sum(taken.counts) == 1
        assert 20 <= taken.total < 60_000

    run_held(tmp_path, scenario)


def test_a_large_send_gives_back_what_it_reserved_before_its_flush(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        request = asyncio.ensure_future(post(sends, [b'{"body":"%s"}' % (b"x" * 100_000)]))
        await sends.flush.asked.wait()
        assert sends.admission.parsing_bytes == 0
        sends.flush.future.set_result(True)
        assert (await request)[0]["status"] == 200

    run_held(tmp_path, scenario)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_send_that_a_failed_flush_refuses_has_a_line_with_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at_once: bool
) -> None:
    failed = Closed("STORE_POISONED", "fsync failed")

    async def scenario(sends: HeldSends) -> None:
        def poisoned(end_offset: int, notify: object) -> None:
            raise failed

        if at_once:
            sends.flush.on_durable = poisoned  # type: ignore[method-assign]  # known before it waits
        connection = Connection()
        assert fast(sends).fast_path(connection, "t", [JSON], KEEP)
        if sends.flush.notify is not None:
            sends.flush.notify(failed)
        assert connection.answers[0].startswith(b"HTTP/1.1 503 ")

    with caplog.at_level(logging.INFO, "lakemq.access"):
        run_held(tmp_path, scenario)
    (record,) = [record for record in caplog.records if record.name == "lakemq.access"]
    fields: dict[str, Any] = record.fields  # type: ignore[attr-defined]  # as our own log lines have
    assert (fields["method"], fields["path"]) == ("POST", "/api/v1/topics/t/messages")
    assert (fields["client"], fields["code"]) == ("10.1.2.3", "STORE_POISONED")
