"""``format("lakemq")`` as a sink: every row is stored once, whatever is run again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from lakemq.client import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import forget_last_commit, send_to_sink, source
from tests.support.waiting import wait_until


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    return shared_broker.client()


def bodies(client: Client, topic: str) -> Counter[str]:
    """How often each body is stored on a topic."""
    found: Counter[str] = Counter()
    for queue in client.queues(topic):
        offset = queue.min_offset
        while offset < queue.confirmed_offset:
            pull = client.pull(topic, queue.queue_id, offset, max=1000)
            found.update(message.body.decode().rstrip() for message in pull.messages)
            offset = pull.next_offset
    return found


def once(count: int) -> Counter[str]:
    return Counter(f"row {i}" for i in range(count))


def numbered(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("concat('row ', id) AS body")


def input_topic(client: Client, topic: str, count: int, first: int = 0) -> None:
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    client.send_many(topic, [Message(f"row {i}", queue_id=i % 2) for i in range(first, first + count)])


def test_a_batch_run_again_after_a_crash_before_its_commit_stores_nothing_twice(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    input_topic(client, "again-in", 300)
    frame = source(
        spark,
        "body binary",
        path=str(shared_broker.store_path),
        subscribe="again-in",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=100,
    )
    options = {"endpoint": shared_broker.endpoint, "topic": "again-out", "rowsPerRequest": 17}
    send_to_sink(frame, tmp_path / "c", **options)
    assert bodies(client, "again-out") == once(300)
    for _ in range(2):
        assert forget_last_commit(tmp_path / "c") == 2, "the batch was not run again"
        send_to_sink(frame, tmp_path / "c", **options)
    assert bodies(client, "again-out") == once(300)
    input_topic(client, "again-in", 50, first=300)
    send_to_sink(frame, tmp_path / "c", **options)
    assert bodies(client, "again-out") == once(350)


def test_a_rebuilt_checkpoint_with_the_same_name_stores_nothing_twice_and_loses_nothing(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    input_topic(client, "name-in", 100)
    frame = source(
        spark,
        "body binary",
        path=str(shared_broker.store_path),
        subscribe="name-in",
        startingOffsets="earliest",
    )
    options = {"endpoint": shared_broker.endpoint, "topic": "name-out", "name": "copy"}
    send_to_sink(frame, tmp_path / "first", **options)
    send_to_sink(frame, tmp_path / "second", **options)
    assert bodies(client, "name-out") == once(100)
    # Batch 0 of a third checkpoint holds other rows: a key of batch 0 must not swallow them. In the same
    # requests are rows sent before, which come again: a message may be stored twice, and never lost.
    input_topic(client, "name-in", 100, first=100)
    send_to_sink(frame, tmp_path / "third", **options)
    assert bodies(client, "name-out") == once(200) + once(100)


def test_a_task_that_died_half_way_stores_nothing_twice(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    client.put_topic("task-out", read_queue_nums=1, write_queue_nums=1)
    endpoint = shared_broker.endpoint

    @udf("string", useArrow=False)
    def row_text(number: int) -> str:
        """Dies at row 400 of the first attempt, when some of the rows before it are stored.

        Each row is larger than 1 kB, else the pipes between Spark's processes would hold them all.
        """
        if number == 400 and TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]  # in a task
            until = time.monotonic() + 60
            with Client(endpoint) as watching:
                while watching.queues("task-out")[0].confirmed_offset < 20:
                    assert time.monotonic() < until, "nothing was sent before row 400"
            raise RuntimeError("this attempt dies")
        return f"row {number}".ljust(2_000)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    try:
        spark.range(0, 500, 1, 1).select(row_text("id").alias("body")).write.format("lakemq").mode(
            "append"
        ).options(endpoint=endpoint, topic="task-out", rowsPerRequest=10).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert bodies(client, "task-out") == once(500)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_that_goes_away_in_the_middle_loses_and_repeats_nothing(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path, end: str
) -> None:
    broker = start_broker()
    with broker.client() as client:
        client.put_topic("out", read_queue_nums=1, write_queue_nums=1)

        again = str(tmp_path / "started again")

        @udf("string", useArrow=False)
        def row_text(number: int) -> str:
            """Keeps each task's last row back until the broker has gone and is there again.

            Rows are large and their batches small, else Spark's pipes would hold them all.
            """
            until = time.monotonic() + 240
            while number in (749, 1499) and not Path(again).exists():
                assert time.monotonic() < until, "the broker was not started again"
                time.sleep(0.05)
            return f"row {number}".ljust(2_000)

        def end_and_start_again() -> None:
            wait_until(lambda: client.queues("out")[0].confirmed_offset >= 100, 120)
            getattr(broker, end)()
            broker.start()
            Path(again).touch()

        rows = spark.range(0, 1500, 1, 2).select(row_text("id").alias("body"))
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
        try:
            with ThreadPoolExecutor(1) as pool:
                restarted = pool.submit(end_and_start_again)
                rows.write.format("lakemq").mode("append").options(
                    endpoint=broker.endpoint, topic="out", rowsPerRequest=5
                ).save()
                restarted.result()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        assert bodies(client, "out") == once(1500)


def test_a_job_run_again_stores_again_unless_it_has_a_name(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    for topic, name in [("plain-out", {}), ("named-out", {"name": "load-2026-11-21"})]:
        client.put_topic(topic)
        for _ in range(2):
            numbered(spark, 20).write.format("lakemq").mode("append").options(
                endpoint=shared_broker.endpoint, topic=topic, **name
            ).save()
    assert bodies(client, "plain-out") == once(20) + once(20)
    assert bodies(client, "named-out") == once(20)


def test_rows_that_are_sent_again_with_less_or_more_of_their_delay_left_are_the_same_rows(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    client.put_topic("late-out")
    for due_at in ("now() - INTERVAL 1 HOUR", "now() + INTERVAL 1 HOUR", "now() + INTERVAL 1 MINUTE"):
        rows = numbered(spark, 20).selectExpr("body", "18 AS delay_level", f"{due_at} AS due_at")
        rows.write.format("lakemq").mode("append").options(
            endpoint=shared_broker.endpoint, topic="late-out", name="late"
        ).save()
    assert bodies(client, "late-out") == once(20)


def test_named_writes_inside_foreach_batch_are_exactly_once(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    input_topic(client, "each-in", 60)
    frame = source(
        spark,
        "body binary",
        path=str(shared_broker.store_path),
        subscribe="each-in",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=20,
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("lakemq").mode("append").options(
            endpoint=shared_broker.endpoint, topic="each-out", name="each"
        ).save()

    def run() -> None:
        frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c")).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    newest = forget_last_commit(tmp_path / "c")
    run()
    assert (tmp_path / "c" / "commits" / str(newest)).exists(), "the batch was not run again"
    assert bodies(client, "each-out") == once(60)


def test_a_broker_that_stays_away_fails_the_job_after_the_time_allowed(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="SERVICE_NOT_AVAILABLE"):
        numbered(spark, 1, 1).write.format("lakemq").mode("append").options(
            endpoint="http://127.0.0.1:9", topic="t", retryTimeoutMs=200
        ).save()
