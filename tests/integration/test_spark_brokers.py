"""Spark over the brokers of a cluster: source, sink and a consumer group, found through a name server.

Contract: one topic's partitions are (broker, queue); a broker that dies keeps its positions while the others
go on, and is caught up with when it is back; a master that is away is read from its slave; a batch that is
sent again goes to the same brokers; the ledger has one row per message of every broker.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.archive import ArchiveSettings, archive
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.run_loop import RunLoop
from jobs.settings import ConsumeSettings
from lakemq.client import Client, Message
from store_native.errors import Unavailable
from structured_streaming import columns
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.source.batch_reader import LakeMQBatchReader
from structured_streaming.source.stream_reader import LakeMQStreamReader
from tests.support.name_servers import BrokersOfCluster
from tests.support.processes import free_ports
from tests.support.spark_streams import (
    TRIGGER,
    Batches,
    forget_last_commit,
    run_available,
    send_to_sink,
    source,
    start,
    table,
)
from tests.support.waiting import wait_until

BOTH = ("broker-a", "broker-b")
SPARK_S = 120.0
HANDLER = """
def handle(message):
    if message.text.startswith("fails") and message.attempt == 1:
        raise ValueError("the first time")
"""


@contextmanager
def two_brokers(root: Path) -> Iterator[BrokersOfCluster]:
    with BrokersOfCluster(root) as started:
        for name in BOTH:
            started.master(name)
        yield started


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    with two_brokers(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[BrokersOfCluster]:
    """For brokers that come and go: who has seen one needs it for two minutes more."""
    with two_brokers(tmp_path / "cluster") as started:
        yield started


def made(cluster: BrokersOfCluster, topic: str) -> str:
    with Client(cluster.endpoint) as client:
        client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(topic, *BOTH)
    return topic


def send(cluster: BrokersOfCluster, name: str, topic: str, *bodies: str) -> None:
    with cluster.brokers[name].client() as client:
        client.send_many(topic, [Message(body, queue_id=at % 2) for at, body in enumerate(bodies)])


def numbered(name: str, first: int, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(first, first + count)]


def bodies(rows: list[Row]) -> list[str]:
    return sorted(bytes(row.body).decode() for row in rows)


def positions(rows: list[Row]) -> Counter[tuple[str, int, int]]:
    return Counter((row.broker_name, row.queue_id, row.queue_offset) for row in rows)


def test_a_stream_over_two_brokers_goes_on_when_one_dies_and_catches_up(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "streamed")
    for name in BOTH:
        send(cluster, name, topic, *numbered(name, 0, 10))
    frame = source(spark, endpoint=cluster.endpoint, subscribe=topic, startingOffsets="earliest")
    batches = Batches()
    query = start(frame, tmp_path / "c", batches)
    b = cluster.brokers["broker-b"]
    try:
        query.processAllAvailable()
        assert len(batches.rows) == 20
        send(cluster, "broker-b", topic, *numbered("broker-b", 10, 5))
        query.processAllAvailable()
        b.kill()
        send(cluster, "broker-a", topic, *numbered("broker-a", 10, 10))
        wait_until(lambda: len(batches.rows) == 35, SPARK_S, lambda: f"{query.exception()} {batches.sizes}")
        b.start()
        send(cluster, "broker-b", topic, *numbered("broker-b", 15, 5))
        wait_until(lambda: len(batches.rows) == 40, SPARK_S, lambda: f"{query.exception()} {batches.sizes}")
    finally:
        query.stop()
        b.start()
    assert bodies(batches.rows) == sorted(n for name in BOTH for n in numbered(name, 0, 20))
    assert set(positions(batches.rows).values()) == {1}
    newest = max((tmp_path / "c" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    written = json.loads(newest.read_text().splitlines()[2])
    assert written["v"] == 2
    assert set(written["brokers"]) == set(BOTH)
    rows = table(spark, endpoint=cluster.endpoint, subscribe=topic).collect()
    assert positions(rows) == positions(batches.rows), "a batch read has them all too"


def test_a_checkpoint_of_one_broker_goes_on_through_the_name_server(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "older")
    for name in BOTH:
        send(cluster, name, topic, *numbered(name, 0, 4))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    alone = source(spark, endpoint=cluster.brokers["broker-a"].endpoint, **options)
    assert bodies(run_available(alone, tmp_path / "c").rows) == numbered("broker-a", 0, 4)
    send(cluster, "broker-a", topic, *numbered("broker-a", 4, 2))
    together = source(spark, endpoint=cluster.endpoint, **options)
    expected = sorted([*numbered("broker-a", 4, 2), *numbered("broker-b", 0, 4)])
    assert bodies(run_available(together, tmp_path / "c").rows) == expected


def test_a_jobs_stream_waits_for_the_name_server_at_its_first_batch_and_a_query_says_that_it_is_away(
    own_cluster: BrokersOfCluster,
) -> None:
    topic = made(own_cluster, "first")
    for name in BOTH:
        send(own_cluster, name, topic, *numbered(name, 0, 2))
    begin = {topic: {f"{name}/{queue}": queue for name in BOTH for queue in (0, 1)}}
    given = {"endpoint": own_cluster.endpoint, "subscribe": topic, "startingOffsets": json.dumps(begin)}
    schema = columns.DEFAULT
    of_query = LakeMQStreamReader(given, schema)
    of_job = LakeMQStreamReader({**given, "brokersJoin": "true", "retryTimeoutMs": "600000"}, schema)
    (names,) = own_cluster.name_servers
    names.kill()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(of_job.initialOffset)
        with pytest.raises(Unavailable, match="SERVICE_NOT_AVAILABLE"):
            of_query.initialOffset()
        assert not asked.done(), "it waits"
        names.start()
        own_cluster.wait_for_topic(topic, *BOTH)
        start = ClusterOffsets.from_json(asked.result(SPARK_S))
    found = {f"{queue.broker_name}/{queue.queue_id}": at for queue, at in start.queues.items()}
    assert found, "of the broker that it knew first"
    assert found.items() <= begin[topic].items()


def test_a_batch_read_needs_every_broker(cluster: BrokersOfCluster) -> None:
    topic = made(cluster, "bounded")
    dead = f"http://127.0.0.1:{free_ports()}"
    addresses = ",".join([cluster.brokers["broker-a"].endpoint, dead])
    schema = columns.DEFAULT
    whole = {"subscribe": topic, "endpoint": ",".join(cluster.brokers[name].endpoint for name in BOTH)}
    LakeMQBatchReader(whole, schema).partitions()
    with pytest.raises(Unavailable, match=f"{dead} does not answer: what is there to be read is not known"):
        LakeMQBatchReader({**whole, "endpoint": addresses}, schema).partitions()


def test_a_master_that_is_away_is_read_from_its_slave(spark: SparkSession, tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path / "cluster") as cluster:
        master = cluster.master("broker-a")
        slave = cluster.slave("broker-a")
        with master.client() as client:
            client.put_topic("t", read_queue_nums=2, write_queue_nums=2)
            client.put_group("g")
        cluster.wait_for_topic("t", "broker-a")
        send(cluster, "broker-a", "t", *numbered("broker-a", 0, 10))
        frame = source(spark, endpoint=cluster.endpoint, subscribe="t", startingOffsets="earliest")
        assert len(run_available(frame, tmp_path / "c").rows) == 10
        send(cluster, "broker-a", "t", *numbered("broker-a", 10, 10))
        with slave.client() as client:
            wait_until(lambda: sum(queue.confirmed_offset for queue in client.queues("t")) == 20)
        master.kill()
        rows = run_available(frame, tmp_path / "c").rows
        assert bodies(rows) == numbered("broker-a", 10, 10)
        assert {row.broker_name for row in rows} == {"broker-a"}


def test_a_batch_sent_again_goes_to_the_same_brokers_and_stores_nothing_twice(
    spark: SparkSession, own_cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    cluster = own_cluster
    topic, sent = made(cluster, "sink-from"), made(cluster, "sink-to")
    for name in BOTH:
        send(cluster, name, topic, *(f"{n}" for n in range(40)))
    rows = source(spark, endpoint=cluster.endpoint, subscribe=topic, startingOffsets="earliest").selectExpr(
        "concat(broker_name, ' ', cast(body AS string)) AS body", "cast(body AS string) AS sharding_key"
    )
    options = {"endpoint": cluster.endpoint, "topic": sent, "rowsPerRequest": "7"}
    send_to_sink(rows, tmp_path / "c", **options)
    expected = sorted(f"{name} {n}" for name in BOTH for n in range(40))

    def stored() -> list[Row]:
        return table(spark, endpoint=cluster.endpoint, subscribe=sent).collect()

    assert bodies(stored()) == expected
    where: dict[str, set[tuple[str, int]]] = {}
    for row in stored():
        where.setdefault(bytes(row.body).decode().split()[1], set()).add((row.broker_name, row.queue_id))
    assert all(len(queues) == 1 for queues in where.values()), "a sharding key has one queue of one broker"
    assert {broker for queues in where.values() for broker, _ in queues} == set(BOTH)
    cluster.master("broker-0")  # its name comes first
    with Client(cluster.endpoint) as client:
        client.put_topic(sent, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(sent, "broker-0", *BOTH)
    forget_last_commit(tmp_path / "c")
    send_to_sink(rows, tmp_path / "c", **options)
    assert bodies(stored()) == expected
    assert json.loads((tmp_path / "c" / "lakemq-sink.json").read_text())["brokers"] == list(BOTH)


def test_a_sinks_open_batch_of_one_brokers_address_goes_there_again_through_the_name_server(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic, sent = made(cluster, "sink-one-from"), made(cluster, "sink-one-to")
    send(cluster, "broker-a", topic, *numbered("row", 0, 40))
    rows = source(
        spark,
        endpoint=cluster.brokers["broker-a"].endpoint,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=20,
    ).selectExpr("cast(body AS string) AS body")
    options = {"topic": sent, "rowsPerRequest": "7"}
    send_to_sink(rows, tmp_path / "c", endpoint=cluster.brokers["broker-a"].endpoint, **options)
    assert forget_last_commit(tmp_path / "c") == 1, "the second batch is open"
    send_to_sink(rows, tmp_path / "c", endpoint=cluster.endpoint, **options)
    stored = table(spark, endpoint=cluster.endpoint, subscribe=sent).collect()
    assert bodies(stored) == sorted(numbered("row", 0, 40))
    assert {row.broker_name for row in stored} == {"broker-a"}


@pytest.mark.nightly
def test_the_archive_lands_both_brokers_messages_and_goes_on_behind_them(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "archived")
    ledger = ledger_at(str(tmp_path / "ledger"))
    for lost in range(2):
        for name in BOTH:
            send(cluster, name, topic, *numbered(name, 4 * lost, 4))
        checkpoint = tmp_path / f"checkpoint-{lost}"  # the second run has lost the first one's
        archive(
            ArchiveSettings((topic,), ledger, checkpoint, endpoint=cluster.endpoint, trigger="availableNow"),
            lambda: spark,
        )
    landed = LedgerReader(str(ledger)).sql("SELECT broker_name, queue_id, queue_offset FROM messages")
    assert sorted(tuple(row.values()) for row in landed.to_pylist()) == [
        (name, queue, offset) for name in BOTH for queue in range(2) for offset in range(4)
    ]


def settings_of(cluster: BrokersOfCluster, tmp_path: Path, topic: str, **changes: Any) -> ConsumeSettings:
    module = f"handlers_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(HANDLER)
    values: dict[str, Any] = {
        "group": f"group-{topic}",
        "topics": (topic,),
        "handler": HandlerTarget(f"{module}:handle", "auto", (str(tmp_path),)),
        "ledger": ledger_at(str(tmp_path / "ledger")),
        "endpoint": cluster.endpoint,
        "start": "earliest",
        "retry_delays": "1s",
        "trigger": TRIGGER,
    }
    return ConsumeSettings(**(values | changes))


def acknowledged(settings: ConsumeSettings) -> list[tuple[Any, ...]]:
    """The messages that are done: broker, queue, offset."""
    text = "SELECT broker_name, queue_id, queue_offset FROM deliveries WHERE verdict = 'ACK'"
    try:
        return [tuple(row.values()) for row in LedgerReader(str(settings.ledger)).sql(text).to_pylist()]
    except Exception:  # noqa: BLE001 - there is no ledger yet
        return []


class Driven:
    """Runs a group on the main thread, and beside it what a test does to its brokers."""

    def __init__(self, settings: ConsumeSettings, steps: Callable[[], None]) -> None:
        self._settings = settings
        self._steps = steps
        self.failure: BaseException | None = None

    def run(self, spark: SparkSession) -> None:
        threads: list[threading.Thread] = []

        def started(loop: RunLoop) -> None:
            def steps() -> None:
                try:
                    self._steps()
                except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
                    self.failure = error
                finally:
                    loop.stop()

            threads.append(threading.Thread(target=steps))
            threads[0].start()

        consume(self._settings, lambda: spark, started=started)
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure


def test_a_group_over_two_brokers_goes_on_when_one_dies_and_catches_up(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "grouped")
    settings = settings_of(cluster, tmp_path, topic)
    b = cluster.brokers["broker-b"]

    def done(count: int) -> None:
        wait_until(lambda: len(acknowledged(settings)) == count, SPARK_S, lambda: acknowledged(settings))

    def steps() -> None:
        done(20)
        b.kill()
        send(cluster, "broker-a", topic, "fails once more", *numbered("broker-a", 9, 9))
        done(30)
        b.start()
        send(cluster, "broker-b", topic, *numbered("broker-b", 9, 10))
        done(40)

    for name in BOTH:
        send(cluster, name, topic, "fails at first", *numbered(name, 0, 9))
    try:
        Driven(settings, steps).run(spark)
    finally:
        b.start()
    reader = LedgerReader(str(settings.ledger))
    assert reader.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    assert reader.sql("SELECT * FROM delivery_gaps").num_rows == 0
    counted = reader.sql(
        "SELECT broker_name, verdict, count(*) AS n FROM deliveries "
        "GROUP BY broker_name, verdict ORDER BY broker_name, verdict"
    ).to_pylist()
    assert [tuple(row.values()) for row in counted] == [
        *(("broker-a", "ACK", 20), ("broker-a", "RETRY", 2)),
        *(("broker-b", "ACK", 20), ("broker-b", "RETRY", 1)),
    ]
    with Client(cluster.endpoint) as client:
        for name in BOTH:
            offsets = client.group_offsets(settings.group, broker_name=name)
            assert {queue: at for (t, queue), at in offsets.items() if t == topic} == {0: 10, 1: 10}
    # A checkpoint that is lost goes on where the ledger ends, on each broker.
    again = settings_of(cluster, tmp_path, topic, checkpoint=tmp_path / "another", until_idle_s=0.5)
    consume(again, lambda: spark)
    assert len(acknowledged(settings)) == 40


@pytest.mark.nightly
def test_a_lost_checkpoint_repeats_nothing_of_a_broker_that_is_away_at_the_start(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "lost")
    for name in BOTH:
        send(cluster, name, topic, *numbered(name, 0, 4))
    first = settings_of(cluster, tmp_path, topic, until_idle_s=0.5)
    consume(first, lambda: spark)
    assert len(acknowledged(first)) == 8
    b = cluster.brokers["broker-b"]
    b.kill()
    names = cluster.name_servers[0]
    wait_until(lambda: "broker-b" not in names.addresses(), otherwise="the name server forgets it")
    again = settings_of(cluster, tmp_path, topic, checkpoint=tmp_path / "another")

    def done(count: int) -> None:
        wait_until(lambda: len(acknowledged(again)) == count, SPARK_S, lambda: acknowledged(again))

    def steps() -> None:
        send(cluster, "broker-a", topic, *numbered("broker-a", 4, 2))
        done(10)
        b.start()
        send(cluster, "broker-b", topic, *numbered("broker-b", 4, 2))
        done(12)

    try:
        Driven(again, steps).run(spark)
    finally:
        b.start()
    assert set(Counter(acknowledged(again)).values()) == {1}


def test_a_group_of_one_brokers_address_goes_on_through_the_name_server(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "moved")
    for name in BOTH:
        send(cluster, name, topic, *numbered(name, 0, 4))
    alone = settings_of(
        cluster, tmp_path, topic, endpoint=cluster.brokers["broker-a"].endpoint, until_idle_s=0.5
    )
    consume(alone, lambda: spark)
    assert {name for name, *_ in acknowledged(alone)} == {"broker-a"}
    consume(settings_of(cluster, tmp_path, topic, until_idle_s=0.5), lambda: spark)
    assert Counter(name for name, *_ in acknowledged(alone)) == {"broker-a": 4, "broker-b": 4}
