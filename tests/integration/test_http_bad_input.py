"""Bad input: a clear problem, nothing stored, and the broker goes on."""

from __future__ import annotations

import gzip
import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http, raw_exchange
from tests.support.waiting import DEADLINE_S, wait_until

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
MIB = 1 << 20


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Iterator[Http]:
    """A broker that must still serve after each test, and hold nothing of it."""
    http = Http(shared_broker.endpoint)
    yield http
    wait_until(http.holds_nothing)
    assert http.get("//readyz").status == 200
    assert http.post("/topics/alive/messages", {"body": "still here"}).status == 200


def nothing_stored(http: Http, topic: str) -> None:
    assert http.messages(topic) == []


def one(code: int, error: str, problem: dict[str, Any]) -> dict[str, Any]:
    assert problem["status"] == code
    (found,) = problem["errors"]
    return dict(found)


def test_a_message_over_4_mib_is_refused_with_its_limit(http: Http) -> None:
    reply = http.send("big", b"x" * (4 * MIB + 1), "application/octet-stream")
    assert reply.problem(413, "MESSAGE_TOO_LARGE")["limit"] == 4 * MIB
    nothing_stored(http, "big")


def test_a_message_of_exactly_4_mib_is_stored(http: Http) -> None:
    assert http.send("exactly", b"x" * (4 * MIB), "application/octet-stream").status == 200
    assert len(http.messages("exactly")[0]["body"]) == 4 * MIB


def test_a_json_message_over_4_mib_is_refused(http: Http) -> None:
    http.send("big_json", json.dumps({"body": "x" * (4 * MIB + 1)}).encode(), JSON).problem(
        413, "MESSAGE_TOO_LARGE"
    )
    nothing_stored(http, "big_json")


def test_a_request_over_64_mib_is_refused_before_it_is_read(http: Http, shared_broker: BrokerProcess) -> None:
    head = (
        f"POST /api/v1/topics/huge/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        f"Content-Length: {65 * MIB}\r\n\r\n"
    ).encode()
    answer = raw_exchange(shared_broker.port, head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"REQUEST_TOO_LARGE" in answer
    nothing_stored(http, "huge")


def test_a_client_that_sends_all_of_an_oversized_request_still_reads_why(http: Http) -> None:
    line = json.dumps({"body": "x" * 1000}).encode() + b"\n"
    http.send("huge2", line * (66 * MIB // len(line)), NDJSON).problem(413, "REQUEST_TOO_LARGE")
    nothing_stored(http, "huge2")


def test_a_chunked_request_over_64_mib_is_refused(http: Http) -> None:
    line = json.dumps({"body": "x" * (MIB - 100)}).encode() + b"\n"
    http.send("huge3", (line for _ in range(66)), NDJSON).problem(413, "REQUEST_TOO_LARGE")
    nothing_stored(http, "huge3")


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"body": "x", "colour": "red"}, "/colour"),
        ({"body": "x", "tags": "a\u0001b"}, "/tags"),
        ({"body": "x", "properties": {"a": "\u0002"}}, "/properties/a"),
        ({"body": "x", "properties": {"a": 1}}, "/properties/a"),
        ({"body": "x", "queue_id": "first"}, "/queue_id"),
        ({"body": 5}, "/body"),
    ],
)
def test_a_wrong_field_is_named_by_its_pointer(http: Http, message: dict[str, Any], pointer: str) -> None:
    problem = http.post("/topics/fields/messages", message).problem(422, "MESSAGE_ILLEGAL")
    assert one(422, "", problem)["pointer"] == pointer
    nothing_stored(http, "fields")


def test_bodies_that_exclude_each_other_are_refused(http: Http) -> None:
    http.post("/topics/two/messages", {"body": "x", "body_json": 1}).problem(422, "MESSAGE_ILLEGAL")
    http.post("/topics/two/messages", {"tags": "x"}).problem(422, "MESSAGE_ILLEGAL")
    http.post("/topics/two/messages", {"messages": []}).problem(422, "MESSAGE_ILLEGAL")
    nothing_stored(http, "two")


def test_one_bad_message_of_many_stores_none_and_names_its_number(http: Http) -> None:
    messages: list[dict[str, Any]] = [{"body": str(n)} for n in range(10)]
    messages[7]["tags"] = "a\tb"
    problem = http.post("/topics/all_or_none/messages", {"messages": messages}).problem(
        422, "MESSAGE_ILLEGAL"
    )
    found = one(422, "", problem)
    assert (found["index"], found["pointer"]) == (7, "/messages/7/tags")
    nothing_stored(http, "all_or_none")


@pytest.mark.parametrize(
    "topic",
    [
        "..",
        ".",
        "%2e%2e",
        "%2e%2e%2f",
        "..%2F..%2Fetc",
        "a%2Fb",
        "a%20b",
        "x" * 300,
        "%00",
        "%ff",
        "a.b",
        "%C3%BC",
        "a+b",
        "*",
    ],
)
def test_a_bad_topic_name_is_refused_everywhere(shared_broker: BrokerProcess, http: Http, topic: str) -> None:
    requests = [
        ("POST", f"/topics/{topic}/messages", b'{"body":"x"}'),
        ("GET", f"/topics/{topic}/queues/0/messages?offset=0", b""),
        ("GET", f"/topics/{topic}/queues", b""),
        ("GET", f"/topics/{topic}", b""),
        ("PUT", f"/topics/{topic}", b"{}"),
        ("DELETE", f"/topics/{topic}", b""),
        ("GET", f"/routes/{topic}", b""),
    ]
    for method, path, body in requests:
        # By hand: a client library would fold the dots away before they are sent.
        data = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        answer = raw_exchange(shared_broker.port, data)
        assert answer.startswith(b"HTTP/1.1 422 "), (method, path, answer[:300])
        assert b'"code": "TOPIC_ILLEGAL"' in answer, (method, path, answer[-400:])
    names = {topic_["topic"] for topic_ in http.pages("/topics", "topics")}
    assert not {name for name in names if "." in name or "/" in name or len(name) > 255}


def test_a_system_topic_takes_no_messages(http: Http) -> None:
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_LAKEMQ_META", "TBW102"):
        http.post(f"/topics/{topic}/messages", {"body": "x"}).problem(403, "NO_PERMISSION")


def test_broken_json_names_the_line(http: Http) -> None:
    lines = [f'"k{n}": {n},' for n in range(20)]
    lines[16] = '"k16": oops,'
    reply = http.send("broken", ('{"body_json": {\n' + "\n".join(lines[1:]) + '\n"z": 1}}').encode(), JSON)
    problem = reply.problem(400, "MALFORMED_BODY")
    assert "line 17" in problem["detail"]
    nothing_stored(http, "broken")


def test_broken_json_at_line_17_of_20_stores_nothing_and_names_the_line(http: Http) -> None:
    lines = [json.dumps({"body": str(n)}) for n in range(20)]
    lines[16] = '{"body": "17'
    problem = http.send("line17", "\n".join(lines).encode(), NDJSON).problem(400, "MALFORMED_BODY")
    found = one(400, "", problem)
    assert (found["line"], found["index"]) == (17, 16)
    nothing_stored(http, "line17")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "line 1 column 1: the request is empty"),
        (b"\xff\xfe", "line 1 column 1: not UTF-8"),
        (b'{"body":"\xff"}', "line 1 column 10: not UTF-8"),
        (b'{"body":"x"} tail', "line 1 column 14: expected the end, found 't'"),
    ],
)
def test_a_body_that_is_no_json_is_refused_at_its_place(http: Http, body: bytes, why: str) -> None:
    problem = http.send("nothing", body, JSON).problem(400, "MALFORMED_BODY")
    assert (problem["detail"], one(400, "", problem)["line"]) == (why, 1)
    nothing_stored(http, "nothing")


@pytest.mark.parametrize(
    ("body", "kind"), [(b"[]", "array"), (b"null", "null"), (b'"text"', "string"), (b"1", "number")]
)
def test_a_body_that_is_no_message_is_refused(http: Http, body: bytes, kind: str) -> None:
    problem = http.send("nothing", body, JSON).problem(422, "MESSAGE_ILLEGAL")
    assert problem["detail"].endswith(f"found a value of the kind {kind}")
    assert one(422, "", problem)["pointer"] == ""
    nothing_stored(http, "nothing")


def test_deep_nesting_is_refused_not_followed(http: Http) -> None:
    reply = http.send("deep", b'{"body_json":' + b"[" * 200_000 + b"]" * 200_000 + b"}", JSON)
    found = one(422, "", reply.problem(422, "MESSAGE_ILLEGAL"))
    assert found["detail"] == "a value is nested deeper than 128 levels"
    assert found["pointer"].startswith("/body_json/0/0/")
    nothing_stored(http, "deep")


def whole_stream() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"body": pa.array([b"x" * 100] * 100, pa.binary())})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_truncated_arrow_stores_nothing(http: Http) -> None:
    whole = whole_stream()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 100):
        problem = http.send("cut", whole[:length], ARROW).problem(400, "MALFORMED_BODY")
        assert problem["detail"].endswith("it breaks off" if length else "the request is empty")
    nothing_stored(http, "cut")


def test_garbage_arrow_stores_nothing(http: Http) -> None:
    whole = bytearray(whole_stream())
    for position in range(0, len(whole), 97):
        damaged = bytes(whole[:position]) + bytes([whole[position] ^ 0xFF]) + bytes(whole[position + 1 :])
        reply = http.send("flipped", damaged, ARROW)
        if reply.status != 200:  # a flip in a body's bytes is still a body
            reply.problem(400, "MALFORMED_BODY")


def test_arrow_without_a_body_column_is_refused(http: Http) -> None:
    sink = io.BytesIO()
    table = pa.table({"text": ["x"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    problem = http.send("no_body", sink.getvalue(), ARROW).problem(422, "MESSAGE_ILLEGAL")
    assert one(422, "", problem) == {"pointer": "/body", "detail": 'the stream has no column "body"'}
    nothing_stored(http, "no_body")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_decompression_bomb_is_refused(http: Http, coding: str) -> None:
    zeros = bytes(512 * MIB)
    bomb = gzip.compress(zeros, 9) if coding == "gzip" else zstandard.ZstdCompressor().compress(zeros)
    assert len(bomb) < MIB
    problem = http.send("bomb", bomb, NDJSON, {"Content-Encoding": coding}).problem(413, "REQUEST_TOO_LARGE")
    assert problem["limit"] == 64 * MIB
    nothing_stored(http, "bomb")


def test_a_broken_gzip_body_is_refused(http: Http) -> None:
    packed = gzip.compress(b'{"body":"x"}')
    http.send("gz", packed[:-4], JSON, {"Content-Encoding": "gzip"}).problem(400, "MALFORMED_BODY")
    http.send("gz", b"no gzip", JSON, {"Content-Encoding": "gzip"}).problem(400, "MALFORMED_BODY")
    http.send("gz", b"x", JSON, {"Content-Encoding": "br"}).problem(415, "UNSUPPORTED_MEDIA_TYPE")
    nothing_stored(http, "gz")


def test_a_body_that_never_ends_is_refused_at_the_deadline(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[limits]\nbody_timeout_s = 1.0\n")
    http = Http(broker.endpoint)
    head = (
        f"POST /api/v1/topics/slow/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        "Content-Length: 1000\r\n\r\n"
    ).encode()
    for data in (head, head + b'{"body":"'):
        started = time.monotonic()
        answer = raw_exchange(broker.port, data)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"REQUEST_TIMEOUT" in answer
        assert time.monotonic() - started > 0.9
    nothing_stored(http, "slow")


def test_a_body_that_drips_is_refused_at_the_deadline_too(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(config="[limits]\nbody_timeout_s = 1.0\n")
    http = Http(broker.endpoint)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as sock:
        sock.sendall(
            b"POST /api/v1/topics/drip/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        sock.settimeout(0.05)
        answer = b""
        deadline = time.monotonic() + DEADLINE_S
        while not answer and time.monotonic() < deadline:
            sock.sendall(b"1\r\nx\r\n")
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")
    nothing_stored(http, "drip")


def test_a_client_that_leaves_in_the_middle_stores_nothing(http: Http, shared_broker: BrokerProcess) -> None:
    head = (
        f"POST /api/v1/topics/left/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        "Content-Length: 1000\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", shared_broker.port)) as sock:
        sock.sendall(head + b'{"body":"x"}\n')
    nothing_stored(http, "left")


def test_bytes_that_are_no_http_get_400(http: Http, shared_broker: BrokerProcess) -> None:
    assert raw_exchange(shared_broker.port, b"\x16\x03\x01 this is TLS\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert raw_exchange(
        shared_broker.port, b"GET /api/v1/topics/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ).startswith(b"HTTP/1.1 400 ")


def test_what_is_not_implemented_says_so_and_stores_nothing(http: Http) -> None:
    http.post("/topics/later/messages", {"body": "x", "delay_ms": 1000}).problem(501, "NOT_IMPLEMENTED")
    http.post("/topics/later/messages", {"body": "x", "deliver_at": 1000}).problem(501, "NOT_IMPLEMENTED")
    http.send("later", b"x", "text/plain", {"X-LakeMQ-Deliver-At": "1"}).problem(501, "NOT_IMPLEMENTED")
    http.send("later", b"{}", "application/cloudevents+json").problem(501, "NOT_IMPLEMENTED")
    http.send("later", b"{}", JSON, {"ce-specversion": "1.0"}).problem(501, "NOT_IMPLEMENTED")
    nothing_stored(http, "later")
    http.post("/topics/later/messages", {"body": "x"})
    http.get("/topics/later/queues/0/messages", offset=0, sql="a=1").problem(501, "NOT_IMPLEMENTED")


def test_a_long_key_and_a_bad_query_are_refused(http: Http) -> None:
    http.post("/topics/q/messages", {"body": "x"}, {"Idempotency-Key": "k" * 256}).problem(
        422, "ARGUMENT_ILLEGAL"
    )
    http.post("/topics/q/messages", {"body": "x"}, results="some").problem(422, "ARGUMENT_ILLEGAL")
    nothing_stored(http, "q")


def test_an_unknown_path_and_method_are_problems_too(http: Http) -> None:
    http.get("/nothing/here").problem(404, "REQUEST_CODE_NOT_SUPPORTED")
    reply = http.call("PATCH", "/topics/t", b"{}")
    reply.problem(405, "REQUEST_CODE_NOT_SUPPORTED")
    assert "allow" in reply.headers


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", "/topics/adm", b"{", 400, "MALFORMED_BODY"),
        ("PUT", "/topics/adm", b'{"read_queue_numbers":1}', 422, "ARGUMENT_ILLEGAL"),
        ("PUT", "/topics/adm", b'{"read_queue_nums":0}', 422, "ARGUMENT_ILLEGAL"),
        ("PUT", "/topics/adm", b'{"perm":9}', 422, "ARGUMENT_ILLEGAL"),
        ("PUT", "/groups/g%2Fh", b"{}", 422, "GROUP_ILLEGAL"),
        ("PUT", f"/groups/{'g' * 121}", b"{}", 422, "GROUP_ILLEGAL"),
        ("GET", "/groups/no_such_group", b"", 404, "GROUP_NOT_EXIST"),
        ("GET", "/topics/no_such_topic", b"", 404, "TOPIC_NOT_EXIST"),
        ("GET", "/topics/no_such_topic/queues", b"", 404, "TOPIC_NOT_EXIST"),
        ("GET", "/topics/no_such_topic/queues/0/messages?offset=0", b"", 404, "TOPIC_NOT_EXIST"),
        ("GET", "/messages/no-such-message", b"", 404, "MESSAGE_NOT_EXIST"),
        ("GET", "/routes/no_such_topic", b"", 404, "TOPIC_NOT_EXIST"),
        ("DELETE", "/topics/no_such_topic", b"", 404, "TOPIC_NOT_EXIST"),
        ("DELETE", "/brokers/broker-z/0", b"", 404, "BROKER_NOT_EXIST"),
    ],
)
def test_administration_refuses_with_the_same_problems(
    http: Http, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    http.call(method, path, body or None, {"Content-Type": JSON}).problem(status, code)


def test_a_pointer_leads_to_the_unknown_field(http: Http) -> None:
    problem = http.put("/topics/adm", {"colour": 1}).problem(422, "ARGUMENT_ILLEGAL")
    assert problem["errors"][0]["pointer"] == "/colour"


def test_a_large_administrative_body_is_refused(http: Http) -> None:
    http.call("PUT", "/topics/adm", b" " * (9 * MIB), {"Content-Type": JSON}).problem(
        413, "REQUEST_TOO_LARGE"
    )
