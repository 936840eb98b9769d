"""Consumer groups of Spark queries: progress, start, and one query at a time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lakemq.client import Client, LakeMQError, Message
from structured_streaming.source.query_lease import TTL_MS
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import Batches, run_available, source, start
from tests.support.waiting import wait_until

CLOCK_STEP_MS = 50
"""The broker counts a lease by another clock than the one it shows."""


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    return shared_broker.client()


def prepared(client: Client, name: str) -> tuple[str, str]:
    """A topic of 2 queues with 40 messages, and a group."""
    client.put_topic(f"t-{name}", read_queue_nums=2, write_queue_nums=2)
    client.put_group(f"g-{name}")
    send(client, f"t-{name}", 0, 40)
    return f"t-{name}", f"g-{name}"


def send(client: Client, topic: str, first: int, count: int) -> None:
    client.send_many(topic, [Message(f"body {i}", queue_id=i % 2) for i in range(first, first + count)])


def test_progress_is_reported_when_a_run_ends(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, group = prepared(client, "progress")
    frame = source(
        spark,
        path=str(shared_broker.store_path),
        endpoint=shared_broker.endpoint,
        subscribe=topic,
        group=group,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
    )
    seen: list[int] = []

    def note(_: int) -> None:
        seen.append(sum(client.group_offsets(group).values()))

    run_available(frame, tmp_path / "c", note)
    assert seen == [0, 10, 20, 30], "a batch is reported only when it is done"
    assert client.group_offsets(group) == {(topic, 0): 20, (topic, 1): 20}


def test_a_new_query_starts_at_its_groups_committed_offsets(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, group = prepared(client, "start")
    client.commit_offsets(group, {(topic, 0): 15, (topic, 1): 18})
    frame = source(
        spark, endpoint=shared_broker.endpoint, subscribe=topic, group=group, startingOffsets="group"
    )
    rows = run_available(frame, tmp_path / "c").rows
    assert sorted((row.queue_id, row.queue_offset) for row in rows) == [
        *((0, i) for i in range(15, 20)),
        *((1, i) for i in range(18, 20)),
    ]


def test_a_new_group_starts_at_its_initial_offsets(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, group = prepared(client, "fallback")
    options = {"endpoint": shared_broker.endpoint, "subscribe": topic, "startingOffsets": "group"}
    earliest = source(spark, group=group, groupInitialOffsets="earliest", **options)
    assert run_available(earliest, tmp_path / "a").sizes == [40]
    client.put_group("g-fallback-2")
    latest = source(spark, group="g-fallback-2", **options)
    assert run_available(latest, tmp_path / "b").sizes == []


def test_one_query_per_group_and_the_second_names_the_owner(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, group = prepared(client, "lease")
    frame = source(
        spark, endpoint=shared_broker.endpoint, subscribe=topic, group=group, startingOffsets="earliest"
    )
    batches = Batches()
    first = start(frame, tmp_path / "a", batches)
    try:
        first.processAllAvailable()
        with pytest.raises(LakeMQError) as held:
            client.acquire_lease(group, "somebody", 1000)
        owner = held.value.context["owner"]
        with pytest.raises(StreamingQueryException) as refused:
            run_available(frame, tmp_path / "b")
        assert f"LEASE_CONFLICT: group {group} is being consumed by {owner}" in str(refused.value)
        watching = source(spark, endpoint=shared_broker.endpoint, subscribe=topic, startingOffsets="earliest")
        assert run_available(watching, tmp_path / "w").sizes == [40]
    finally:
        first.stop()
    # The lease is given back when the first query's worker stops: nobody waits for it to run out.
    wait_until(
        lambda: _acquired(client, group, "somebody"), TTL_MS / 1000 / 2, "only its end gave the lease back"
    )
    client.release_lease(group, "somebody")
    send(client, topic, 40, 10)
    assert run_available(frame, tmp_path / "a").sizes == [10]


def _acquired(client: Client, group: str, owner: str) -> bool:
    try:
        return client.acquire_lease(group, owner, 1000).epoch > 0
    except LakeMQError as error:
        if error.code != "LEASE_CONFLICT":
            raise
        return False


def test_a_dead_owners_lease_is_waited_out(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, group = prepared(client, "dead")
    dead = client.acquire_lease(group, "spark/a-host-that-died", 2_000)
    held: list[tuple[str, int]] = []

    def who_holds_it(_: int) -> None:
        with pytest.raises(LakeMQError, match="LEASE_CONFLICT") as refused:
            client.acquire_lease(group, "somebody", 1000)
        held.append((str(refused.value.context["owner"]), time.time_ns() // 1_000_000))

    frame = source(
        spark, endpoint=shared_broker.endpoint, subscribe=topic, group=group, startingOffsets="earliest"
    )
    assert run_available(frame, tmp_path / "c", who_holds_it).sizes == [40]
    ((owner, at_ms),) = held
    assert owner != "spark/a-host-that-died"
    assert at_ms >= dead.expires_at - CLOCK_STEP_MS, "the dead owner's lease was taken from it"
