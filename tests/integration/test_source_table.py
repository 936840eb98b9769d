"""A topic as a view: CREATE TEMPORARY VIEW ... USING lakemq, read by its name."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from tests.support.broker_process import BrokerProcess


def test_a_topic_named_v_is_read_through_a_view(spark: SparkSession, shared_broker: BrokerProcess) -> None:
    client = shared_broker.client()
    client.put_topic("v", read_queue_nums=1, write_queue_nums=1)
    client.send_ndjson("v", b'{"body":"a"}\n{"body":"b"}')
    options = f"endpoint '{shared_broker.endpoint}', subscribe 'v', startingOffsets '{{\"v\":{{\"0\":1}}}}'"
    spark.sql(f"CREATE TEMPORARY VIEW view_v USING lakemq OPTIONS ({options})")
    wanted = spark.createDataFrame([(1, b"b")], "queue_offset bigint, body binary")
    assert_df_equality(spark.sql("SELECT queue_offset, body FROM view_v"), wanted, ignore_nullable=True)
