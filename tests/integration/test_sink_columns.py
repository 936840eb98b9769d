"""What the sink's columns become in a message, and what it refuses."""

from __future__ import annotations

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakemq.client import Client
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import table
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    return shared_broker.client()


def write(frame: DataFrame, broker: BrokerProcess, **options: str | int) -> None:
    frame.write.format("lakemq").mode("append").options(endpoint=broker.endpoint, **options).save()


def test_every_column_arrives(spark: SparkSession, client: Client, shared_broker: BrokerProcess) -> None:
    client.put_topic("all-columns", read_queue_nums=2, write_queue_nums=2)
    write(
        spark.sql(
            "SELECT 'all-columns' AS topic, unhex('00ff') AS body, array('k1','k2') AS keys, 'T' AS tags, "
            "map('a','1','b','2') AS properties, 1 AS queue_id, 7 AS flag, 'id-of-mine' AS message_id, "
            "timestamp '2026-11-21 10:00:00.123' AS born_timestamp"
        ),
        shared_broker,
    )
    (message,) = client.pull("all-columns", 1, 0).messages
    assert (message.body, list(message.keys), message.tags) == (b"\x00\xff", ["k1", "k2"], "T")
    assert (dict(message.properties), message.flag) == ({"a": "1", "b": "2"}, 7)
    assert message.message_id == "id-of-mine"
    assert message.born_timestamp == 1_795_255_200_123


def test_reconsume_times_go_with_retries(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    client.put_group("again")
    write(spark.sql("SELECT 'x' AS body, 3 AS reconsume_times"), shared_broker, topic="%RETRY%again")
    (message,) = client.pull("%RETRY%again", 0, 0).messages
    assert message.reconsume_times == 3


def test_text_bodies_and_null_columns_are_fine(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    client.put_topic("few-columns", read_queue_nums=1, write_queue_nums=1)
    write(
        spark.sql(
            "SELECT 'Grüße' AS body, cast(null AS array<string>) AS keys, cast(null AS string) AS tags"
        ),
        shared_broker,
        topic="few-columns",
    )
    (message,) = client.pull("few-columns", 0, 0).messages
    assert (message.body.decode(), list(message.keys), message.tags) == ("Grüße", [], None)


def test_the_column_topic_sends_rows_to_their_topics_in_order(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    for i in range(3):
        client.put_topic(f"many-{i}", read_queue_nums=1, write_queue_nums=1)
    rows = spark.range(0, 90, 1, 1).selectExpr(
        "concat('many-', id % 3) AS topic", "cast(id AS string) AS body", "0 AS queue_id"
    )
    write(rows, shared_broker, rowsPerRequest=7)
    stored = table(
        spark,
        "topic string, queue_offset bigint, body binary",
        endpoint=shared_broker.endpoint,
        subscribe="many-0,many-1,many-2",
    )
    wanted = spark.range(90).selectExpr(
        "concat('many-', id % 3) AS topic",
        "id div 3 AS queue_offset",
        "cast(cast(id AS string) AS binary) AS body",
    )
    assert_df_equality(stored, wanted, ignore_row_order=True, ignore_nullable=True)


def test_rows_of_one_sharding_key_go_to_one_queue(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess
) -> None:
    client.put_topic("sharded", read_queue_nums=4, write_queue_nums=4)
    rows = spark.range(200).selectExpr("cast(id AS string) AS body", "concat('s', id % 10) AS sharding_key")
    write(rows, shared_broker, topic="sharded")
    queue_of: dict[int, set[int]] = {}
    found: list[int] = []
    for queue in client.queues("sharded"):
        for message in client.pull("sharded", queue.queue_id, 0, max=1000).messages:
            found.append(int(message.body))
            queue_of.setdefault(int(message.body) % 10, set()).add(queue.queue_id)
    assert sorted(found) == list(range(200))
    assert {len(queues) for queues in queue_of.values()} == {1}
    assert len(set.union(*queue_of.values())) > 1, "keys spread over the queues"


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("SELECT 'x' AS body", {}, "option topic or a column topic"),
        ("SELECT 'x' AS value", {"topic": "t"}, "no column 'value'"),
        ("SELECT 'x' AS body, 1.5 AS tags", {"topic": "t"}, "'tags' must be string"),
        ("SELECT 'x' AS body", {"topic": "t", "rowPerRequest": 5}, "did you mean rowsPerRequest"),
        ("SELECT 'x' AS body, now() AS due_at", {"topic": "t"}, "needs the column delay_level"),
        ("SELECT 'x' AS body, 1 AS delay_level, -1L AS due_at", {"topic": "t"}, "an integer between 0"),
        ("SELECT '' AS body", {"topic": "t"}, "MESSAGE_ILLEGAL"),
        ("SELECT 'x' AS body", {"topic": "no/such topic"}, "TOPIC_ILLEGAL"),
    ],
)
def test_what_cannot_be_sent_is_named(
    spark: SparkSession, shared_broker: BrokerProcess, query: str, options: dict[str, str | int], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(query), shared_broker, **options)
    assert said in str(caught.value)


def test_a_log_cannot_be_overwritten(spark: SparkSession, shared_broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException, match="a log cannot be overwritten"):
        spark.sql("SELECT 'x' AS body").write.format("lakemq").mode("overwrite").options(
            endpoint=shared_broker.endpoint, topic="t"
        ).save()


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_rows_are_compressed_on_their_way(
    spark: SparkSession, client: Client, shared_broker: BrokerProcess, coding: str
) -> None:
    topic = f"compressed-{coding}"
    client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    rows = spark.range(500).selectExpr("repeat(cast(id AS string), 1000) AS body", f"'{topic}' AS topic")
    with TcpProxy(shared_broker.port) as proxy:
        at = f"http://127.0.0.1:{proxy.port}"
        rows.write.format("lakemq").mode("append").options(endpoint=at, compression=coding).save()
        assert 0 < proxy.carried["to server"] < 100_000
    stored = table(spark, endpoint=shared_broker.endpoint, subscribe=topic).select("body").collect()
    assert sorted(bytes(row.body) for row in stored) == sorted(b"%d" % n * 1000 for n in range(500))


def test_a_compression_that_is_none_is_refused(spark: SparkSession, shared_broker: BrokerProcess) -> None:
    rows = spark.sql("SELECT 't' AS topic, 'x' AS body")
    with pytest.raises(PySparkException, match="compression must be one of none, gzip, zstd, not 'lz4'"):
        write(rows, shared_broker, compression="lz4")
