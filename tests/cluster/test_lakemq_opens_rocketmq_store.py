"""LakeMQ opens a store that RocketMQ wrote, and reads every message: Reader, owner and Spark's batch source.

Contract (store format): "point Spark at the store you already have". Once after RocketMQ stopped cleanly,
once after it was killed with SIGKILL. Its records carry no whole-record CRC; some bodies are compressed.
"""

from __future__ import annotations

import base64
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from store_native import Reader, Store
from tests.support.peer_brokers import RocketMQ
from tests.support.plain_log import read_log
from tests.support.stores import COMMITLOG_FILE_SIZE, copy_store, open_store, rocketmq_sizes

TOPICS = ("RocketA", "RocketB")
MESSAGES = 1200
COMPRESS_OVER = 2000
Place = tuple[str, int, int]
Row = tuple[bytes, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Peer:
    """A store RocketMQ wrote, and its messages as RocketMQ's own client pulled them (body, tags, keys)."""

    path: Path
    messages: dict[Place, Row]
    delayed: int
    killed: bool


def _produce(rocketmq: RocketMQ) -> tuple[dict[Place, Row], int]:
    """Returns what RocketMQ's client pulls once everything is delivered, and how many were delayed."""
    half = MESSAGES // 2
    rocketmq.tool("produce", topics=TOPICS[0], count=half, size=4000, compress_over=COMPRESS_OVER)
    mixed = {"count": half, "first": MESSAGES, "delay_every": 50, "batch_every": 7}
    sent = rocketmq.tool("produce", topics=",".join(TOPICS), **mixed)
    delayed = sum(1 for row in sent if row["delay_level"])
    assert delayed
    rows = rocketmq.tool("dump", topics=",".join(TOPICS), at_least=MESSAGES)
    assert len(rows) == MESSAGES, "the delayed messages were not delivered"
    messages = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (
            base64.b64decode(row["body"]),
            row["tags"],
            row["keys"],
        )
        for row in rows
    }
    return messages, delayed


@pytest.fixture(scope="module", params=["stopped", pytest.param("killed", marks=pytest.mark.nightly)])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Peer:
    """A store of RocketMQ, stopped cleanly or killed."""
    directory = tmp_path_factory.mktemp(f"rocketmq-{request.param}")
    rocketmq = RocketMQ(directory, commitlog_file_size=COMMITLOG_FILE_SIZE, settings=rocketmq_sizes())
    killed = request.param == "killed"
    with rocketmq:
        messages, delayed = _produce(rocketmq)
        if killed:
            rocketmq.kill_broker()
    assert (rocketmq.store / "abort").exists() == killed
    return Peer(rocketmq.store, messages, delayed, killed)


def _read(store: Store | Reader) -> dict[Place, Row]:
    found: dict[Place, Row] = {}
    for topic in TOPICS:
        for queue_id, offset, high, _confirmed in store.queues(topic):
            while offset < high:
                piece = store.read_json(topic, queue_id, offset, max_messages=500, max_bytes=8 << 20)
                for row in json.loads(piece.messages):
                    body = row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])
                    found[topic, queue_id, row["queue_offset"]] = (body, row["tags"], " ".join(row["keys"]))
                assert piece.next_offset > offset, (topic, queue_id, offset, piece.status)
                offset = piece.next_offset
    return found


def test_reader_sees_every_message_of_a_store_nobody_owns(peer: Peer) -> None:
    with closing(Reader(str(peer.path))) as reader:
        assert set(TOPICS) <= set(reader.topics())
        assert reader.topic_id(TOPICS[0]) == ""
        assert _read(reader) == peer.messages


def test_owner_opens_it_and_goes_on_from_the_same_offsets(peer: Peer, tmp_path: Path) -> None:
    path = copy_store(peer.path, tmp_path / "store")
    with closing(open_store(path)) as store:
        read = _read(store)
        assert {place: read.get(place) for place in peer.messages} == peer.messages
        found = json.loads(store.query_json(TOPICS[1], f"key{MESSAGES + 1}"))
        assert [message["keys"] for message in found] == [
            [f"key{MESSAGES + 1}", f"shared{(MESSAGES + 1) % 10}"]
        ]
        high = {queue_id: high for queue_id, _low, high, _confirmed in store.queues(TOPICS[0])}
        appended = store.append_message(TOPICS[0], b"next", queue_id=2)
        assert json.loads(appended.answer("SEND_OK"))["queue_offset"] == high[2]
        assert store.wait_flushed(appended.end_offset, 5000)
    log = read_log(path)
    assert not log.damage
    assert log.records[-1].body == b"next" or any(record.body == b"next" for record in log.records)


def test_delayed_messages_come_again_only_where_rocketmq_would_repeat_them(
    peer: Peer, tmp_path: Path
) -> None:
    # RocketMQ saves its delay progress every 10 s and at a clean stop; killed in between it repeats the rest.
    path = copy_store(peer.path, tmp_path / "store")
    with closing(open_store(path)) as store:
        store.wait_dispatched(store.watermarks()[0] + 1, 2500)  # longer than level 1
        read = _read(store)
    assert {place: read.get(place) for place in peer.messages} == peer.messages
    extra = len(read) - len(peer.messages)
    assert extra == 0 if not peer.killed else extra <= peer.delayed


def test_spark_reads_every_message(peer: Peer, spark: SparkSession) -> None:
    frame = spark.read.format("lakemq").options(path=str(peer.path), subscribe=",".join(TOPICS)).load()
    rows = frame.select("topic", "queue_id", "queue_offset", "body", "tags", "keys").collect()
    read = {
        (row.topic, row.queue_id, row.queue_offset): (bytes(row.body), row.tags, " ".join(row.keys))
        for row in rows
    }
    assert read == peer.messages
