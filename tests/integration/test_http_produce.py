"""Produce: every content type ends as the same message, and the answer says where it is."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Http:
    return Http(shared_broker.endpoint)


def arrow_stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_a_one_way_send_says_that_the_preference_was_applied(http: Http) -> None:
    for headers in ({"Prefer": "respond-async"}, {"Prefer": "respond-async", "Content-Encoding": "gzip"}):
        body = gzip.compress(b'{"body":"x"}') if "Content-Encoding" in headers else b'{"body":"x"}'
        answer = http.send("preferred", body, "application/json", headers)
        assert (answer.status, answer.headers["preference-applied"]) == (202, "respond-async")
    kept = http.post("/topics/preferred/messages", {"body": "x"}, {"Prefer": "wait=5"})
    assert kept.status == 200
    assert "preference-applied" not in kept.headers


def test_the_answer_to_a_delayed_send_says_that_its_position_is_the_schedules(http: Http) -> None:
    sent = http.post("/topics/later/messages", {"body": "x", "delay_level": 18, "queue_id": 3}).json
    assert (sent["topic"], sent["scheduled"], sent["queue_id"]) == ("later", True, 17)
    place = http.get("/messages/" + sent["offset_message_id"]).json
    assert (place["topic"], place["queue_id"], place["queue_offset"]) == (
        "SCHEDULE_TOPIC_XXXX",
        17,
        sent["queue_offset"],
    )
    assert "scheduled" not in http.post("/topics/later/messages", {"body": "x"}).json


def test_one_json_message_is_stored_with_all_its_fields(http: Http) -> None:
    message = {
        "body": "a pear",
        "tags": "FR6",
        "keys": ["k1", "k2"],
        "properties": {"colour": "grün"},
        "queue_id": 2,
        "flag": 7,
        "message_id": "my-own-id",
    }
    sent = http.send("json_one", json.dumps(message).encode(), JSON)
    assert sent.status == 200
    assert sent.json == {
        "status": "SEND_OK",
        "message_id": "my-own-id",
        "offset_message_id": sent.json["offset_message_id"],
        "topic": "json_one",
        "broker_name": "broker-a",
        "queue_id": 2,
        "queue_offset": 0,
        "duplicate": False,
    }
    (read,) = http.messages("json_one")
    assert read["body"] == "a pear"
    assert (read["tags"], read["keys"], read["flag"]) == ("FR6", ["k1", "k2"], 7)
    assert read["properties"] == {"colour": "grün"}
    assert read["message_id"] == "my-own-id"
    assert read["offset_message_id"] == sent.json["offset_message_id"]
    assert (read["queue_id"], read["queue_offset"], read["reconsume_times"]) == (2, 0, 0)
    assert read["born_host"].startswith("127.0.0.1")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"body": "text"}, {"body": "text"}),
        ({"body_base64": base64.b64encode(b"\xff\x00").decode()}, {"body_base64": "/wA="}),
        ({"body_json": {"a": [1, 2]}}, {"body": '{"a": [1, 2]}'}),
    ],
)
def test_a_body_comes_as_text_base64_or_json(
    http: Http, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    topic = f"body_{next(iter(given))}"
    assert http.post(f"/topics/{topic}/messages", given).status == 200
    (read,) = http.messages(topic)
    assert {key: value for key, value in read.items() if key.startswith("body")} == shown


def test_many_json_messages_answer_ranges_of_queue_offsets(http: Http) -> None:
    messages = [{"body": str(n), "queue_id": n % 2} for n in range(6)]
    sent = http.post("/topics/json_many/messages", {"messages": messages})
    assert sent.status == 200
    assert sent.json == {
        "status": "SEND_OK",
        "count": 6,
        "queues": [
            {"queue_id": 0, "first_queue_offset": 0, "count": 3},
            {"queue_id": 1, "first_queue_offset": 0, "count": 3},
        ],
        "duplicate": False,
    }
    assert [m["body"] for m in http.messages("json_many")] == ["0", "2", "4", "1", "3", "5"]


def test_full_results_have_one_for_each_message_in_order(http: Http) -> None:
    messages = [{"body": str(n), "queue_id": 0, "message_id": f"m{n}"} for n in range(3)]
    sent = http.post("/topics/full/messages", {"messages": messages}, results="full")
    assert [(r["message_id"], r["queue_offset"]) for r in sent.json["results"]] == [
        ("m0", 0),
        ("m1", 1),
        ("m2", 2),
    ]


def test_ndjson_is_one_message_a_line(http: Http) -> None:
    body = b'{"body":"one","queue_id":0}\n\n{"body":"two","queue_id":0}\n'
    sent = http.send("ndjson", body, NDJSON)
    assert sent.status == 200
    assert sent.json["count"] == 2
    assert [m["body"] for m in http.messages("ndjson")] == ["one", "two"]


def test_an_arrow_stream_is_one_message_a_row(http: Http) -> None:
    table = pa.table(
        {
            "body": pa.array([b"one", b"two"], pa.binary()),
            "keys": pa.array([["a", "b"], None], pa.list_(pa.utf8())),
            "tags": pa.array(["T", None], pa.utf8()),
            "queue_id": pa.array([0, 0], pa.int32()),
        }
    )
    sent = http.send("arrow", arrow_stream(table), ARROW)
    assert sent.status == 200, sent.body
    assert sent.json["count"] == 2
    read = http.messages("arrow")
    assert [m["body"] for m in read] == ["one", "two"]
    assert [m["tags"] for m in read] == ["T", None]
    assert read[0]["keys"] == ["a", "b"]


def test_any_other_type_is_the_message_with_its_fields_in_headers(http: Http) -> None:
    headers = {
        "X-LakeMQ-Tags": "T",
        "X-LakeMQ-Keys": "k1 k2",
        "X-LakeMQ-Queue-Id": "1",
        "X-LakeMQ-Property-Colour": "red",
    }
    sent = http.send("raw", b"\x89PNG\r\n", "image/png", headers)
    assert sent.status == 200
    assert sent.json["queue_id"] == 1
    (read,) = http.messages("raw")
    assert base64.b64decode(read["body_base64"]) == b"\x89PNG\r\n"
    assert (read["tags"], read["keys"], read["properties"]) == ("T", ["k1", "k2"], {"colour": "red"})


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_body_is_the_same_message(http: Http, coding: str) -> None:
    body = json.dumps({"body": "x" * 10_000}).encode()
    packed = gzip.compress(body) if coding == "gzip" else zstandard.ZstdCompressor().compress(body)
    topic = f"coded_{coding}"
    assert http.send(topic, packed, JSON, {"Content-Encoding": coding}).status == 200
    (read,) = http.messages(topic)
    assert read["body"] == "x" * 10_000


def test_a_chunked_body_is_taken(http: Http) -> None:
    assert http.send("chunked", iter([b'{"bo', b'dy":"in ', b'pieces"}']), JSON).status == 200
    assert [m["body"] for m in http.messages("chunked")] == ["in pieces"]


def test_messages_of_one_sharding_key_share_a_queue(http: Http) -> None:
    queues = {
        http.post("/topics/sharded/messages", {"body": str(n), "sharding_key": "customer-1"}).json["queue_id"]
        for n in range(8)
    }
    assert len(queues) == 1


def test_messages_without_a_queue_go_round_all_of_them(http: Http) -> None:
    queues = [http.post("/topics/round/messages", {"body": str(n)}).json["queue_id"] for n in range(8)]
    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_prefer_respond_async_answers_accepted(http: Http) -> None:
    sent = http.post("/topics/one_way/messages", {"body": "x"}, {"Prefer": "respond-async"})
    assert sent.status == 202
    assert [m["body"] for m in http.messages("one_way")] == ["x"]


def test_an_idempotency_key_repeats_the_first_answer(http: Http) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = http.post("/topics/idem/messages", {"body": "x"}, key)
    again = http.post("/topics/idem/messages", {"body": "x"}, key)
    assert (first.status, again.status) == (200, 200)
    assert first.json["duplicate"] is False
    assert again.json == {**first.json, "duplicate": True}
    assert len(http.messages("idem")) == 1


def test_an_idempotency_key_used_for_another_request_is_refused_with_the_first_ones_place(http: Http) -> None:
    key = {"Idempotency-Key": "order-18"}
    first = http.post("/topics/idem_other/messages", {"body": "x"}, key).json
    place = {
        "first_topic": "idem_other",
        "first_queue_id": first["queue_id"],
        "first_queue_offset": first["queue_offset"],
        "first_message_id": first["message_id"],
        "first_offset_message_id": first["offset_message_id"],
        "first_count": 1,
    }
    two = {"messages": [{"body": "x"}, {"body": "x"}]}
    for topic, document in (
        ("idem_other", {"body": "y"}),
        ("idem_other", {"body": "x", "tags": "t"}),
        ("idem_other", two),
        ("idem_elsewhere", {"body": "x"}),
    ):
        problem = http.post(f"/topics/{topic}/messages", document, key).problem(422, "IDEMPOTENCY_KEY_REUSED")
        assert problem.items() >= place.items()
        assert problem["retryable"] is False
    assert len(http.messages("idem_other")) == 1
    http.get("/topics/idem_elsewhere").problem(404, "TOPIC_NOT_EXIST")


def test_an_idempotency_key_outlives_a_crash_and_a_restart(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)
    key = {"Idempotency-Key": "order-17"}
    first = http.post("/topics/idem/messages", {"body": "x"}, key).json
    broker.kill()
    broker.start()
    assert http.post("/topics/idem/messages", {"body": "x"}, key).json == {**first, "duplicate": True}
    broker.restart()
    assert http.post("/topics/idem/messages", {"body": "x"}, key).json == {**first, "duplicate": True}
    assert len(http.messages("idem")) == 1


def test_concurrent_sends_get_each_their_own_place(http: Http) -> None:
    def send(n: int) -> tuple[int, int]:
        answer = http.post("/topics/concurrent/messages", {"body": str(n)})
        assert answer.status == 200
        return answer.json["queue_id"], answer.json["queue_offset"]

    with ThreadPoolExecutor(16) as pool:
        places = list(pool.map(send, range(400)))
    assert len(set(places)) == 400
    assert sorted(int(m["body"]) for m in http.messages("concurrent")) == list(range(400))


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_what_was_acknowledged_survives_sigkill(
    start_broker: Callable[..., BrokerProcess], flush: str
) -> None:
    broker = start_broker(flush=flush)
    http = Http(broker.endpoint)
    for n in range(50):
        assert http.post("/topics/kept/messages", {"body": str(n), "queue_id": 0}).status == 200
    broker.kill()
    broker.start()
    assert [m["body"] for m in http.messages("kept")] == [str(n) for n in range(50)]


def test_a_send_whose_flush_is_late_is_stored_and_says_so(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = start_broker(config="[limits]\nsync_flush_timeout_s = 0.2\n", environment=disk.environment)
    http = Http(broker.endpoint)
    assert http.post("/topics/late/messages", {"body": "in time"}).json["status"] == "SEND_OK"
    disk.slow_down()
    late = http.post("/topics/late/messages", {"body": "late"})
    assert (late.status, late.json["status"]) == (202, "FLUSH_DISK_TIMEOUT")
    assert "message_id" in late.json
    changed = http.put("/groups/late_group", {})
    assert (changed.status, changed.headers["x-lakemq-status"]) == (202, "FLUSH_DISK_TIMEOUT")
    disk.recover()
    assert sorted(m["body"] for m in http.messages("late")) == ["in time", "late"]


def test_a_send_that_asks_not_to_wait_is_answered_before_the_flush(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = start_broker(config="[limits]\nsync_flush_timeout_s = 0.2\n", environment=disk.environment)
    http = Http(broker.endpoint)
    http.put("/topics/hasty", {})
    disk.slow_down()
    for waits, status in ((False, 200), (True, 202), (False, 200)):
        answer = http.post("/topics/hasty/messages", {"body": "x", "wait_store_ok": waits})
        assert answer.status == status
    disk.recover()
    assert len(http.messages("hasty")) == 3
