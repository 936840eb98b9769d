"""The answer is the same whether it goes out in one write or as two ASGI messages."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ingest_api.http.responses.raw_response import JsonResponse
from tests.support.broker_process import BrokerProcess
from tests.support.http import raw_exchange

POST = b"POST /api/v1/topics/answers/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"


def head_and_body(answer: bytes) -> tuple[list[bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def test_a_connection_is_kept_and_answers_follow_each_other(shared_broker: BrokerProcess) -> None:
    answer = raw_exchange(shared_broker.port, (POST + b"\r\nx") * 3 + POST + b"Connection: close\r\n\r\nx")
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 4
    assert answer.count(b'"status":"SEND_OK"') == 4
    assert answer.count(b"\r\ndate: ") == 4


def test_the_fast_path_and_the_asgi_path_answer_the_same(shared_broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=10) as sock:
        sock.sendall(POST + b"\r\nx")
        kept = sock.recv(65536)
    closed = raw_exchange(shared_broker.port, POST + b"Connection: close\r\n\r\nx")
    (kept_head, kept_body), (closed_head, closed_body) = head_and_body(kept), head_and_body(closed)
    assert {line.partition(b":")[0] for line in closed_head} - {b"connection"} == {
        line.partition(b":")[0] for line in kept_head
    }
    assert kept_head[0] == closed_head[0] == b"HTTP/1.1 200 OK"
    for head, body in ((kept_head, kept_body), (closed_head, closed_body)):
        assert b"content-length: %d" % len(body) in head


def test_a_small_answer_arrives_in_one_piece(shared_broker: BrokerProcess) -> None:
    """Were the fast path lost (another uvicorn), this says so; answers would only be slower."""
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=10) as sock:
        for _ in range(20):
            sock.sendall(POST + b"\r\nx")
            assert sock.recv(65536).endswith(b'"duplicate":false}')


def test_a_client_that_waits_for_100_continue_gets_it_before_the_answer(shared_broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=10) as sock:
        sock.sendall(POST + b"Expect: 100-continue\r\n\r\n")
        assert sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"x")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 100_000])
def test_another_server_gets_two_asgi_messages(length: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(JsonResponse(202).send(send, b"x" * length))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 202
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % length
    assert sent[1]["body"] == b"x" * length
