"""A running stream over the broker's restart: it maps the store's files, and the owner may replace them.

Contract: with the log in the last quarter of a file, where the next one is made ahead, the stream reads every
message once over a clean stop and over SIGKILL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakemq.client import Message
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import Batches, source, start

FILE_BYTES = 64 << 20
LARGE_BYTES = 2 << 20


def send(broker: BrokerProcess, first: int, count: int, size: int = 0) -> None:
    client = broker.client()
    for number in range(first, first + count):
        client.send_many("t", [Message(f"{number} ".encode() + b"x" * size, queue_id=number % 2)])


@pytest.mark.parametrize("stop", [BrokerProcess.stop, BrokerProcess.kill], ids=["clean", "killed"])
def test_a_stream_reads_every_message_over_a_restart_in_the_last_quarter_of_a_file(
    spark: SparkSession, tmp_path: Path, stop: Callable[[BrokerProcess], None]
) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    try:
        broker.client().put_topic("t", read_queue_nums=2, write_queue_nums=2)
        # Four fifths of the first file; then, after the restart, into the second one.
        before = FILE_BYTES * 4 // 5 // LARGE_BYTES
        send(broker, 0, before, LARGE_BYTES)
        frame = source(
            spark, "body binary", subscribe="t", path=str(broker.store_path), startingOffsets="earliest"
        )
        frame = frame.selectExpr("substring(body, 1, 8) AS body")
        batches = Batches()
        query = start(frame, tmp_path / "checkpoint", batches)
        query.processAllAvailable()
        for _ in range(2):
            stop(broker)
            broker.start()
        send(broker, before, 200)
        send(broker, before + 200, before, LARGE_BYTES)
        query.processAllAvailable()
        query.stop()
    finally:
        broker.close()
    numbers = sorted(int(bytes(row.body).split()[0]) for row in batches.rows)
    assert numbers == list(range(2 * before + 200))
