"""Batch reads of ``format("lakemq")``: both transports, columns, ranges, filters, refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from lakemq.client import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import table

COUNT = 600


@pytest.fixture(scope="module")
def orders(shared_broker: BrokerProcess) -> Iterator[Client]:
    """600 messages on the 3 queues of `orders`: message i goes to queue i % 3, tag A, B or none."""
    with shared_broker.client() as client:
        client.put_topic("orders", read_queue_nums=3, write_queue_nums=3)
        client.send_many(
            "orders",
            [
                Message(
                    f"body {i}".encode(),
                    tags=("A", "B", None)[i // 3 % 3],
                    keys=[f"k{i}", "all"],
                    properties={"n": str(i)},
                    queue_id=i % 3,
                )
                for i in range(COUNT)
            ],
        )
        yield client


@pytest.fixture(params=["local", "http"])
def where(request: pytest.FixtureRequest, shared_broker: BrokerProcess) -> dict[str, str]:
    """The option that names the store, for each transport."""
    local = {"path": str(shared_broker.store_path)}
    return local if request.param == "local" else {"endpoint": shared_broker.endpoint}


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(bytes(row.body).split()[1]) for row in rows)


def refusal(spark: SparkSession, schema: str | None = None, /, **options: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        table(spark, schema, **options).collect()
    return str(caught.value)


def test_both_transports_give_equal_rows(
    spark: SparkSession, shared_broker: BrokerProcess, orders: Client
) -> None:
    wanted = {"subscribe": "orders", "includeProperties": "true"}
    local = table(spark, path=str(shared_broker.store_path), **wanted)
    http = table(spark, endpoint=shared_broker.endpoint, **wanted)
    assert_df_equality(local.orderBy("physical_offset"), http.orderBy("physical_offset"))
    assert numbers(local.collect()) == list(range(COUNT))


def test_rows_say_what_was_sent(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    frame = table(spark, subscribe="orders", includeProperties="true", **where)
    row = next(row for row in frame.where("queue_id = 1").collect() if bytes(row.body) == b"body 4")
    sent = orders.pull("orders", 1, row.queue_offset, max=1).messages[0]
    assert (row.topic, row.broker_name, row.queue_id, row.queue_offset) == ("orders", "broker-a", 1, 1)
    assert (row.message_id, row["keys"], row.tags, row.properties) == (
        sent.message_id,
        ["k4", "all"],
        "B",
        {"n": "4"},
    )
    assert round(row.store_timestamp.timestamp() * 1000) == sent.store_timestamp
    assert (row.reconsume_times, row.flag, row.physical_offset) == (0, 0, sent.physical_offset)


def test_a_schema_prunes_and_orders_columns(
    spark: SparkSession, where: dict[str, str], orders: Client
) -> None:
    frame = table(spark, "tags string, body binary", subscribe="orders", **where)
    assert frame.columns == ["tags", "body"]
    assert numbers(frame.collect()) == list(range(COUNT))


def test_tags_filter_in_the_store(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    frame = table(spark, "tags string, body binary", subscribe="orders", tags="A || B", **where)
    rows = frame.collect()
    assert {row.tags for row in rows} == {"A", "B"}
    assert numbers(rows) == [i for i in range(COUNT) if i // 3 % 3 != 2]


def test_layout_kafka_has_kafkas_columns(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    frame = table(spark, subscribe="orders", layout="kafka", includeHeaders="true", **where)
    assert frame.schema == StructType.fromDDL(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key:string,value:binary>>"
    )
    row = next(row for row in frame.collect() if bytes(row.value) == b"body 4")
    assert (bytes(row.key), row.topic, row.partition, row.offset, row.timestampType) == (
        b"k4",
        "orders",
        1,
        1,
        1,
    )
    assert ("n", b"4") in [(header.key, bytes(header.value)) for header in row.headers]


def test_offsets_bound_a_read(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    frame = table(
        spark,
        subscribe="orders",
        startingOffsets=json.dumps({"orders": {"0": 10, "1": -2, "2": 199}}),
        endingOffsets=json.dumps({"orders": {"0": 20, "1": 1, "2": -1}}),
        **where,
    )
    found = sorted((row.queue_id, row.queue_offset) for row in frame.collect())
    assert found == [*((0, i) for i in range(10, 20)), (1, 0), (2, 199)]


def test_times_bound_a_read(spark: SparkSession, where: dict[str, str], shared_broker: BrokerProcess) -> None:
    client = shared_broker.client()
    topic = f"times-{'path' if 'path' in where else 'http'}"
    client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    stored: list[int] = []
    for i in range(3):
        while stored and time.time_ns() // 1_000_000 <= stored[-1]:
            pass  # each message needs a millisecond of its own; the broker has this host's clock
        client.send(topic, f"body {i}")
        stored.append(client.pull(topic, 0, i, wait_ms=5000).messages[0].store_timestamp)
    frame = table(spark, subscribe=topic, startingTimestamp=stored[1], endingTimestamp=stored[2], **where)
    assert numbers(frame.collect()) == [1]


def test_assign_reads_single_queues(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    frame = table(spark, assign='{"orders":[1]}', **where)
    assert numbers(frame.collect()) == list(range(1, COUNT, 3))


def test_slices_can_be_cut_for_more_tasks(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    def read(**options: int) -> tuple[int, list[int]]:
        frame = table(spark, subscribe="orders", **where, **options)
        return frame.rdd.getNumPartitions(), numbers(frame.collect())

    assert read() == (3, list(range(COUNT)))
    assert read(minPartitions=9) == (9, list(range(COUNT)))
    assert read(maxRecordsPerPartition=150) == (6, list(range(COUNT)))


def test_sql_reads_a_view(spark: SparkSession, where: dict[str, str], orders: Client) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in {"subscribe": "orders", **where}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders_log USING lakemq OPTIONS ({options})")
    found = spark.sql("SELECT tags, count(*) AS n FROM orders_log GROUP BY tags ORDER BY tags")
    wanted = spark.createDataFrame([(None, 198), ("A", 201), ("B", 201)], "tags string, n bigint")
    assert_df_equality(found, wanted, ignore_nullable=True)


def test_hosts_without_the_store_read_over_http(
    spark: SparkSession, shared_broker: BrokerProcess, orders: Client, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "store-of-another-host")
    frame = table(spark, path=elsewhere, endpoint=shared_broker.endpoint, subscribe="orders")
    assert numbers(frame.collect()) == list(range(COUNT))
    assert "give endpoint too" in refusal(spark, path=elsewhere, subscribe="orders")


def test_a_topic_without_messages_is_an_empty_table(
    spark: SparkSession, where: dict[str, str], shared_broker: BrokerProcess
) -> None:
    shared_broker.client().put_topic("silent")
    assert table(spark, subscribe="silent", **where).collect() == []
    with pytest.raises(Exception, match="FILTER_ILLEGAL: tags: a message has one tag"):
        spark.readStream.format("lakemq").options(subscribe="silent", tags="a &&", **where).load()


def test_topics_and_queues_that_do_not_exist_are_named(
    spark: SparkSession, where: dict[str, str], orders: Client
) -> None:
    assert "TOPIC_NOT_EXIST: topic ordres does not exist" in refusal(spark, subscribe="ordres", **where)
    assert "QUEUE_NOT_EXIST: topic orders has no queue 7" in refusal(spark, assign='{"orders":[7]}', **where)


def test_wrong_options_and_columns_are_named(
    spark: SparkSession, where: dict[str, str], orders: Client
) -> None:
    assert "did you mean failOnDataLoss" in refusal(spark, subscribe="orders", failOnDataLos="false", **where)
    assert "NOT_IMPLEMENTED" in refusal(spark, subscribe="orders", sqlFilter="a = 1", **where)
    assert "did you mean 'body'" in refusal(spark, "bodi binary", subscribe="orders", **where)
    assert "is binary, not string" in refusal(spark, "body string", subscribe="orders", **where)
    assert "FILTER_ILLEGAL" in refusal(spark, subscribe="orders", tags="A | B", **where)
