"""Spark's source and sink, and a group's reading, behind a certificate.

Contract: rows go and come over https when the authority is believed, and nothing does when it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemq.client import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority, arguments
from tests.support.consumer_process import ConsumerProcess
from tests.support.spark_streams import run_available, source, table


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    served = authority.certificate()
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), arguments=arguments(served))
    yield process
    process.close()


def test_what_the_sink_sent_is_read_by_a_stream_and_by_a_batch(
    spark: SparkSession, broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    at = {"endpoint": broker.endpoint, "caFile": str(authority.file)}
    rows = spark.range(5_000).selectExpr("repeat(cast(id AS string), 100) AS body")
    rows.write.format("lakemq").mode("append").options(**at, topic="orders").save()
    found = table(spark, **at, subscribe="orders")
    assert found.count() == 5_000
    batches = run_available(
        source(spark, **at, subscribe="orders", startingOffsets="earliest", group="readers"), tmp_path / "c"
    )
    assert sorted(bytes(row.body) for row in batches.rows) == sorted(
        str(number).encode() * 100 for number in range(5_000)
    )


def test_a_broker_that_nobody_vouches_for_is_neither_read_nor_written(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    at = {"endpoint": broker.endpoint, "retryTimeoutMs": "1000"}
    with pytest.raises(PySparkException, match="its certificate is not accepted"):
        table(spark, **at, subscribe="orders").count()
    rows = spark.range(1).selectExpr("cast(id AS string) AS body")
    writer = rows.write.format("lakemq").mode("append").options(**at, topic="unsent")
    with pytest.raises(PySparkException, match="its certificate is not accepted"):
        writer.save()


@pytest.mark.nightly
@pytest.mark.long
def test_a_group_is_consumed_over_tls(
    broker: BrokerProcess, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEMQ_CA_FILE", str(authority.file))
    with Client(broker.endpoint) as client:
        client.put_topic("jobs", read_queue_nums=1, write_queue_nums=1)
        client.send_many("jobs", [Message("well"), Message("badly")])
    (tmp_path / "handles.py").write_text(
        "from lakemq.handler import Verdict\n\n\n"
        "def handle(message):\n"
        "    return Verdict.dead('as asked') if message.body == b'badly' else None\n"
    )
    words = ("--group", "g", "--topic", "jobs", "--from", "earliest", "--handler", "handles:handle")
    with ConsumerProcess(tmp_path, *words, "--endpoint", broker.endpoint, "--available-now") as consumer:
        assert consumer.wait() == 0, consumer.log()
    with Client(broker.endpoint) as client:
        assert client.group_offsets("g")["jobs", 0] == 2
        (dead,) = client.pull("%DLQ%g", 0, 0).messages
        assert dead.body == b"badly"
