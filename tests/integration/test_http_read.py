"""Read: pulls as JSON and Arrow, long polling, look-ups."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.waiting import wait_until

ARROW = "application/vnd.apache.arrow.stream"
HOLD_MS = 60_000
SOON_S = HOLD_MS / 1000 / 2  # what is not woken is answered when its time is up


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Http:
    return Http(shared_broker.endpoint)


def fill(http: Http, topic: str, count: int, **fields: object) -> None:
    messages = [{"body": f"m{n}", "queue_id": 0, "tags": "AB"[n % 2], **fields} for n in range(count)]
    assert http.post(f"/topics/{topic}/messages", {"messages": messages}).status == 200


def test_a_pull_reads_on_from_its_next_offset(http: Http) -> None:
    fill(http, "walk", 10)
    first = http.get("/topics/walk/queues/0/messages", offset=0, max=4).json
    assert (first["status"], first["next_offset"], first["min_offset"], first["max_offset"]) == (
        "FOUND",
        4,
        0,
        10,
    )
    assert [m["body"] for m in first["messages"]] == ["m0", "m1", "m2", "m3"]
    last = http.get("/topics/walk/queues/0/messages", offset=first["next_offset"], max=100).json
    assert [m["queue_offset"] for m in last["messages"]] == [4, 5, 6, 7, 8, 9]
    end = http.get("/topics/walk/queues/0/messages", offset=last["next_offset"]).json
    assert (end["status"], end["next_offset"], end["messages"]) == ("NO_NEW_MSG", 10, [])


def test_an_offset_outside_the_queue_is_said_not_guessed(http: Http) -> None:
    fill(http, "outside", 3)
    page = http.get("/topics/outside/queues/0/messages", offset=1000).json
    assert page["status"] == "OFFSET_ILLEGAL"
    assert (page["min_offset"], page["max_offset"], page["messages"]) == (0, 3, [])


def test_max_bytes_bounds_a_pull_but_one_message_always_comes(http: Http) -> None:
    fill(http, "bytes", 10)
    page = http.get("/topics/bytes/queues/0/messages", offset=0, max_bytes=1).json
    assert len(page["messages"]) == 1


def test_tags_choose_messages_and_a_pull_without_a_match_moves_on(http: Http) -> None:
    fill(http, "tagged", 10)
    odd = http.get("/topics/tagged/queues/0/messages", offset=0, tags="B").json
    assert [m["body"] for m in odd["messages"]] == ["m1", "m3", "m5", "m7", "m9"]
    both = http.get("/topics/tagged/queues/0/messages", offset=0, tags="A%20%7C%7C%20B").json
    assert len(both["messages"]) == 10
    none = http.get("/topics/tagged/queues/0/messages", offset=0, tags="C").json
    assert (none["status"], none["next_offset"], none["messages"]) == ("NO_MATCHED_MSG", 10, [])


def test_an_arrow_pull_has_the_sources_columns_and_the_rest_in_headers(http: Http) -> None:
    fill(http, "columns", 5)
    reply = http.get("/topics/columns/queues/0/messages", {"Accept": ARROW}, offset=1, end_offset=4)
    assert reply.status == 200
    assert reply.headers["content-type"] == ARROW
    assert reply.headers["x-lakemq-status"] == "FOUND"
    assert reply.headers["x-lakemq-next-offset"] == "4"
    assert reply.headers["x-lakemq-count"] == "3"
    assert json.loads(reply.headers["x-lakemq-damaged"]) == []
    table = pa.ipc.open_stream(io.BytesIO(reply.body)).read_all()
    assert table["queue_offset"].to_pylist() == [1, 2, 3]
    assert table["body"].to_pylist() == [b"m1", b"m2", b"m3"]
    assert {"topic", "broker_name", "queue_id", "message_id", "keys", "tags", "born_timestamp"} <= set(
        table.column_names
    )


def test_an_arrow_pull_takes_the_columns_asked_for_in_their_order(http: Http) -> None:
    fill(http, "few", 2)
    reply = http.get(
        "/topics/few/queues/0/messages", {"Accept": ARROW}, offset=0, columns="body,queue_offset"
    )
    table = pa.ipc.open_stream(io.BytesIO(reply.body)).read_all()
    assert table.column_names == ["body", "queue_offset"]
    refused = http.get("/topics/few/queues/0/messages", {"Accept": ARROW}, offset=0, columns="nonsense")
    refused.problem(422, "ARGUMENT_ILLEGAL")


def test_an_arrow_pull_at_the_end_is_an_empty_stream(http: Http) -> None:
    fill(http, "empty", 2)
    reply = http.get("/topics/empty/queues/0/messages", {"Accept": ARROW}, offset=2)
    assert reply.headers["x-lakemq-status"] == "NO_NEW_MSG"
    assert pa.ipc.open_stream(io.BytesIO(reply.body)).read_all().num_rows == 0


def test_a_long_poll_is_answered_when_its_message_comes(http: Http) -> None:
    fill(http, "wait", 1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(http.get, "/topics/wait/queues/0/messages", offset=1, wait_ms=HOLD_MS)
        _until_held(http, 1)
        http.post("/topics/wait/messages", {"body": "now", "queue_id": 0})
        page = held.result(timeout=SOON_S).json
    assert [m["body"] for m in page["messages"]] == ["now"]


def test_a_long_poll_ends_when_its_time_is_up(http: Http) -> None:
    fill(http, "idle", 1)
    started = time.monotonic()
    page = http.get("/topics/idle/queues/0/messages", offset=1, wait_ms=300).json
    assert time.monotonic() - started > 0.25
    assert (page["status"], page["next_offset"]) == ("NO_NEW_MSG", 1)


def test_a_long_poll_with_tags_sleeps_through_messages_of_others(http: Http) -> None:
    fill(http, "picky", 1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(
            http.get, "/topics/picky/queues/0/messages", offset=0, tags="WANTED", wait_ms=HOLD_MS
        )
        _until_held(http, 1)
        http.post("/topics/picky/messages", {"body": "other", "queue_id": 0, "tags": "OTHER"})
        http.post("/topics/picky/messages", {"body": "mine", "queue_id": 0, "tags": "WANTED"})
        page = held.result(timeout=SOON_S).json
    assert [m["body"] for m in page["messages"]] == ["mine"]


def test_an_arrow_pull_is_held_too(http: Http) -> None:
    fill(http, "wait_arrow", 1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(
            http.get, "/topics/wait_arrow/queues/0/messages", {"Accept": ARROW}, offset=1, wait_ms=HOLD_MS
        )
        _until_held(http, 1)
        http.post("/topics/wait_arrow/messages", {"body": "now", "queue_id": 0})
        reply = held.result(timeout=SOON_S)
    assert reply.headers["x-lakemq-count"] == "1"


def test_many_pulls_of_one_queue_wake_together(http: Http) -> None:
    fill(http, "crowd", 1)
    with ThreadPoolExecutor(20) as pool:
        held = [
            pool.submit(http.get, "/topics/crowd/queues/0/messages", offset=1, wait_ms=HOLD_MS)
            for _ in range(20)
        ]
        _until_held(http, 20)
        http.post("/topics/crowd/messages", {"body": "now", "queue_id": 0})
        assert all(len(future.result(timeout=SOON_S).json["messages"]) == 1 for future in held)
    _until_held(http, 0)


def test_a_client_that_leaves_a_long_poll_is_forgotten(http: Http, shared_broker: BrokerProcess) -> None:
    import socket

    fill(http, "gone", 1)
    with socket.create_connection(("127.0.0.1", shared_broker.port)) as sock:
        sock.sendall(
            b"GET /api/v1/topics/gone/queues/0/messages?offset=1&wait_ms=60000 HTTP/1.1\r\n"
            b"Host: localhost\r\n\r\n"
        )
        _until_held(http, 1)
    _until_held(http, 0)


def test_a_stop_answers_held_pulls_at_once(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)
    fill(http, "stopping", 1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(http.get, "/topics/stopping/queues/0/messages", offset=1, wait_ms=HOLD_MS)
        _until_held(http, 1)
        started = time.monotonic()
        assert broker.stop() == 0
        assert held.result(timeout=SOON_S).json["status"] == "NO_NEW_MSG"
    assert time.monotonic() - started < SOON_S


def test_a_message_is_found_by_each_of_its_ids(http: Http) -> None:
    sent = http.post("/topics/ids/messages", {"body": "x", "message_id": "client/id 1"}).json
    assert http.get(f"/messages/{sent['offset_message_id']}").json["body"] == "x"
    assert http.get("/messages/client%2Fid%201").json["offset_message_id"] == sent["offset_message_id"]
    assert http.get("/messages/client%2Fid%201", topic="ids").json["body"] == "x"


def test_messages_are_found_by_key_and_by_time(http: Http) -> None:
    before = int(time.time() * 1000) - 1
    for n in range(3):
        http.post("/topics/keyed/messages", {"body": str(n), "keys": ["order-1", f"n{n}"], "queue_id": 0})
    found = http.get("/topics/keyed/messages", key="order-1").json["messages"]
    assert sorted(m["body"] for m in found) == ["0", "1", "2"]
    assert [m["body"] for m in http.get("/topics/keyed/messages", key="n1").json["messages"]] == ["1"]
    assert len(http.get("/topics/keyed/messages", key="order-1", max=2).json["messages"]) == 2
    assert http.get("/topics/keyed/messages", key="order-1", end=before).json["messages"] == []
    assert http.get("/topics/keyed/messages", key="none").json["messages"] == []


def test_offsets_are_found_by_time(http: Http) -> None:
    http.post("/topics/timed/messages", {"body": "0", "queue_id": 0})
    (first,) = http.messages("timed")
    after = first["store_timestamp"] + 1
    assert http.get("/topics/timed/queues/0/offset", timestamp=0).json == {"offset": 0}
    assert http.get("/topics/timed/queues/0/offset", timestamp=after + 3_600_000).json == {"offset": 1}


def test_queues_show_their_bounds(http: Http) -> None:
    fill(http, "bounds", 3)
    queues = http.get("/topics/bounds/queues").json
    assert [q["queue_id"] for q in queues] == [0, 1, 2, 3]
    bounds = {"queue_id": 0, "min_offset": 0, "max_offset": 3, "confirmed_offset": 3}
    assert queues[0] == bounds | {"epochs": [{"epoch": 1, "first_offset": 0, "at_or_before": False}]}


def test_a_reader_follows_a_writer_without_a_gap(http: Http) -> None:
    """While messages come in, a reader that long-polls sees each offset once, in order."""
    fill(http, "follow", 1)
    total = 300

    def write() -> None:
        for n in range(1, total):
            http.post("/topics/follow/messages", {"body": str(n), "queue_id": 0})

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    while len(seen) < total:
        page = http.get("/topics/follow/queues/0/messages", offset=len(seen), wait_ms=10_000).json
        assert page["status"] == "FOUND"
        seen += [m["queue_offset"] for m in page["messages"]]
    writer.join()
    assert seen == list(range(total))


def _until_held(http: Http, count: int) -> None:
    wait_until(lambda: http.pulls_held() == count, otherwise=http.pulls_held)
