"""Whoever has the answer to a send reads the message: at once, with one pull that waits for nothing.

Contract: with `--flush sync`, of each kind of request, of each call of the client and of the producer, on the
fast path and through the threads of large bodies.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakemq import Client, Message, Producer
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http

SENDS = 30
ARROW = "application/vnd.apache.arrow.stream"
LARGE = 300 << 10
"""Bytes: more than is parsed on the event loop."""
MANY = 10_000
"""Messages: the last one is dispatched long after the flush."""


def line(body: str) -> bytes:
    return json.dumps({"body": body, "queue_id": 0}).encode()


def rows(body: str) -> pa.Table:
    return pa.table({"body": pa.array([body.encode()]), "queue_id": pa.array([0], pa.int32())})


def arrow(body: str) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows(body).schema) as writer:
        writer.write_table(rows(body))
    return sink.getvalue()


Request = Callable[[Http, str, str], object]
REQUESTS: dict[str, Request] = {
    "fast path": lambda http, topic, body: http.send(topic, line(body), "application/json"),
    "json": lambda http, topic, body: http.send(topic, line(body), "application/json", results="full"),
    "json, large": lambda http, topic, body: http.send(topic, line(body).ljust(LARGE), "application/json"),
    "chunked": lambda http, topic, body: http.send(topic, iter([line(body)]), "application/json"),
    "ndjson": lambda http, topic, body: http.send(topic, line(body) + b"\n", "application/x-ndjson"),
    "ndjson, many": lambda http, topic, body: http.send(
        topic, b"".join(line("before") + b"\n" for _ in range(MANY - 1)) + line(body), "application/x-ndjson"
    ),
    "arrow": lambda http, topic, body: http.send(topic, arrow(body), ARROW),
    "gzip": lambda http, topic, body: http.send(
        topic, gzip.compress(line(body)), "application/json", {"Content-Encoding": "gzip"}
    ),
    "raw": lambda http, topic, body: http.send(
        topic, body.encode(), "text/plain", {"X-LakeMQ-Queue-Id": "0"}
    ),
}
Call = Callable[[Client, Producer, str, str], object]
CALLS: dict[str, Call] = {
    "send": lambda client, _, topic, body: client.send(topic, body, queue_id=0),
    "send_many": lambda client, _, topic, body: client.send_many(topic, [Message(body, queue_id=0)]),
    "send_ndjson": lambda client, _, topic, body: client.send_ndjson(topic, line(body)),
    "send_arrow": lambda client, _, topic, body: client.send_arrow(topic, rows(body)),
    "producer": lambda _, producer, topic, body: producer.send(body, queue_id=0),
    "producer, later": lambda _, producer, topic, body: producer.send_later(body, queue_id=0).result(60),
}


def read_at_once(http: Http, topic: str, offset: int) -> list[str]:
    page = http.get(f"/topics/{topic}/queues/0/messages", offset=offset).json
    return [message["body"] for message in page["messages"]]


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_a_request_stored_is_read_by_who_has_its_answer(shared_broker: BrokerProcess, kind: str) -> None:
    http, topic = Http(shared_broker.endpoint), "at-once-" + "".join(filter(str.isalpha, kind))
    messages = MANY if kind == "ndjson, many" else 1
    for number in range(SENDS):
        answer = REQUESTS[kind](http, topic, str(number))
        found = read_at_once(http, topic, (number + 1) * messages - 1)
        assert found == [str(number)], answer


@pytest.mark.parametrize("kind", CALLS)
def test_what_a_call_stored_is_read_by_who_has_its_result(shared_broker: BrokerProcess, kind: str) -> None:
    http, topic = Http(shared_broker.endpoint), "at-once-of-" + "".join(filter(str.isalpha, kind))
    with (
        Client(shared_broker.endpoint) as client,
        Producer(shared_broker.endpoint, topic, linger_ms=0) as producer,
    ):
        for number in range(SENDS):
            result = CALLS[kind](client, producer, topic, str(number))
            found = read_at_once(http, topic, number)
            assert found == [str(number)], result
