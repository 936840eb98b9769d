"""Streams of ``format("lakemq")``: every message once, over triggers, restarts and changing topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from lakemq.client import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import Batches, forget_last_commit, run_available, source, start


@pytest.fixture
def where(request: pytest.FixtureRequest, shared_broker: BrokerProcess) -> dict[str, str]:
    """The option that names the store: its files, or over HTTP where a test asks for both."""
    over_http = getattr(request, "param", "local") == "http"
    return {"endpoint": shared_broker.endpoint} if over_http else {"path": str(shared_broker.store_path)}


both_transports = pytest.mark.parametrize("where", ["local", "http"], indirect=True)


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    return shared_broker.client()


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: Client) -> str:
    """A topic of the test's own, 4 queues."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
    client.put_topic(name, read_queue_nums=4, write_queue_nums=4)
    return name


def send(client: Client, topic: str, first: int, count: int, queues: int = 4) -> None:
    messages = [Message(f"body {i}".encode(), queue_id=i % queues) for i in range(first, first + count)]
    client.send_many(topic, messages)


def numbers(rows: list[Row]) -> list[int]:
    return [int(bytes(row.body).split()[1]) for row in rows]


def failure(run: Callable[[], Any]) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run()
    return str(caught.value)


@both_transports
def test_available_now_ends_at_the_snapshot_and_resumes_behind_it(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 1000)
    frame = source(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=300, **where)

    def more(batch_id: int) -> None:
        send(client, topic, 1000 + 50 * batch_id, 50)

    first = run_available(frame, tmp_path / "c", more)
    assert first.sizes == [300, 300, 300, 100]
    assert sorted(numbers(first.rows)) == list(range(1000))
    second = run_available(frame, tmp_path / "c")
    assert sorted(numbers(second.rows)) == list(range(1000, 1200))
    assert run_available(frame, tmp_path / "c").sizes == []


def test_queues_are_read_in_order(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 400)
    frame = source(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=70, **where)
    rows = run_available(frame, tmp_path / "c").rows
    for queue_id in range(4):
        offsets = [row.queue_offset for row in rows if row.queue_id == queue_id]
        assert offsets == list(range(100))


def test_a_batch_that_was_not_committed_comes_again_the_same(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 200)
    frame = source(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=80, **where)
    first = run_available(frame, tmp_path / "c")
    assert first.sizes == [80, 80, 40]
    forget_last_commit(tmp_path / "c")
    send(client, topic, 200, 30)
    second = run_available(frame, tmp_path / "c")
    assert second.found[0] == first.found[-1]
    assert sorted(numbers(second.rows[40:])) == list(range(200, 230))


@both_transports
def test_a_stream_from_latest_reads_what_comes_after_its_start(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 100)
    batches = Batches()
    query = start(source(spark, subscribe=topic, **where), tmp_path / "c", batches)
    query.processAllAvailable()
    send(client, topic, 100, 20)
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    backlog = json.loads(progress.sources[0].latestOffset)
    query.stop()
    assert sorted(numbers(batches.rows)) == list(range(100, 120))
    queues = backlog["topics"][topic]["brokers"]["broker-a"]
    assert (backlog["v"], queues) == (1, {"0": 30, "1": 30, "2": 30, "3": 30})
    send(client, topic, 120, 5)
    resumed = run_available(source(spark, subscribe=topic, **where), tmp_path / "c")
    assert sorted(numbers(resumed.rows)) == list(range(120, 125))


def test_a_first_batch_from_latest_that_was_not_committed_loses_nothing(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    """The starting position is in no checkpoint until batch 0 is: what comes meanwhile must not vanish."""
    send(client, topic, 0, 10)
    frame = source(spark, subscribe=topic, startingOffsets="latest", **where)
    run_available(frame, tmp_path / "c")
    assert forget_last_commit(tmp_path / "c") == 0
    send(client, topic, 10, 10)
    assert sorted(numbers(run_available(frame, tmp_path / "c").rows)) == list(range(10, 20))


def test_new_topics_and_queues_join_from_their_beginning(
    spark: SparkSession, client: Client, where: dict[str, str], tmp_path: Path
) -> None:
    client.put_topic("join-a", read_queue_nums=1, write_queue_nums=1)
    send(client, "join-a", 0, 10, queues=1)
    frame = source(spark, subscribePattern="join-.*", **where)
    assert run_available(frame, tmp_path / "c").sizes == []
    client.put_topic("join-a", read_queue_nums=2, write_queue_nums=2)
    client.put_topic("join-b", read_queue_nums=1, write_queue_nums=1)
    client.put_topic("unjoined", read_queue_nums=1, write_queue_nums=1)
    send(client, "join-a", 10, 10, queues=2)
    send(client, "join-b", 20, 10, queues=1)
    send(client, "unjoined", 30, 10, queues=1)
    assert sorted(numbers(run_available(frame, tmp_path / "c").rows)) == list(range(10, 30))


def test_a_topic_subscribed_again_goes_on_where_it_stopped(
    spark: SparkSession, client: Client, topic: str, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client.put_topic("other", read_queue_nums=1, write_queue_nums=1)
    send(client, topic, 0, 10)
    where = {"path": str(shared_broker.store_path), "startingOffsets": "earliest"}
    both = source(spark, subscribe=f"{topic},other", **where)
    one = source(spark, subscribe="other", **where)
    run_available(both, tmp_path / "c")
    send(client, topic, 10, 10)
    send(client, "other", 20, 10, queues=1)
    assert sorted(numbers(run_available(one, tmp_path / "c").rows)) == list(range(20, 30))
    assert sorted(numbers(run_available(both, tmp_path / "c").rows)) == list(range(10, 20))


def test_a_topic_made_again_fails_the_query_or_restarts_at_its_beginning(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 100)
    frame = source(spark, subscribe=topic, startingOffsets="earliest", **where)
    run_available(frame, tmp_path / "c")
    client.delete_topic(topic)
    assert f"topic {topic} no longer exists" in failure(lambda: run_available(frame, tmp_path / "c"))
    client.put_topic(topic, read_queue_nums=4, write_queue_nums=4)
    send(client, topic, 100, 8)
    assert f"topic {topic} was deleted and created again" in failure(
        lambda: run_available(frame, tmp_path / "c")
    )
    tolerant = source(spark, subscribe=topic, failOnDataLoss="false", **where)
    assert sorted(numbers(run_available(tolerant, tmp_path / "c").rows)) == list(range(100, 108))


def test_a_time_starts_a_stream(
    spark: SparkSession, client: Client, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    send(client, topic, 0, 8)
    stored = client.pull(topic, 0, 0, wait_ms=5000).messages[0].store_timestamp
    frame = source(spark, subscribe=topic, startingTimestamp=stored, **where)
    assert sorted(numbers(run_available(frame, tmp_path / "a").rows)) == list(range(8))
    late = source(spark, subscribe=topic, startingTimestamp=stored + 10**9, **where)
    assert run_available(late, tmp_path / "b").sizes == []
    strict = source(
        spark,
        subscribe=topic,
        startingTimestamp=stored + 10**9,
        startingOffsetsByTimestampStrategy="error",
        **where,
    )
    assert "no message stored at or after" in failure(lambda: run_available(strict, tmp_path / "d"))


def test_a_wrong_schema_is_named_in_the_querys_error(
    spark: SparkSession, topic: str, where: dict[str, str], tmp_path: Path
) -> None:
    frame = source(spark, "boddy binary", subscribe=topic, **where)
    said = failure(lambda: run_available(frame, tmp_path / "c"))
    assert "did you mean 'body'" in said
    assert "UnboundLocalError" not in said
