"""A stop while the broker is away: no request is repeated any more when the job has to end.

Contract: neither a batch under way nor a source that waits for the broker holds the stop up; what was
given up is handled at the next start, once.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.started_stream import StartedStream
from jobs.settings import ConsumeSettings
from structured_streaming.retry_timeout import RETRY_TIMEOUT_MS
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.held_handler import HeldHandler
from tests.support.spark_streams import Batches, source, start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

AT_ONCE_S = RETRY_TIMEOUT_MS / 1000 / 2
WAIT_S = 240.0


@pytest.mark.nightly
def test_a_batch_that_waits_for_the_broker_is_given_up_and_handled_at_the_next_start(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    client.put_topic("cut", read_queue_nums=2, write_queue_nums=2)
    client.send_ndjson("cut", "\n".join(json.dumps({"body": str(n)}) for n in range(10)).encode())
    handler = HeldHandler(tmp_path, "slow_handler")
    arguments: tuple[str, ...] = (
        "--group",
        "c",
        "--topic",
        "cut",
        "--handler",
        "slow_handler:hold",
        "--from",
        "earliest",
    )
    arguments = (*arguments, "--endpoint", broker.endpoint, "--concurrency", "1")
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.wait_for(handler.handling.exists)
        broker.kill()  # the task has read one of the two queues
        handler.go_on.touch()
        asked_at = time.monotonic()
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
        assert time.monotonic() - asked_at < AT_ONCE_S
        assert "is given up" in consumer.log()
        assert "Traceback" not in consumer.log(), consumer.log()
    broker.start()
    settings = ConsumeSettings(
        group="c",
        topics=("cut",),
        handler=HandlerTarget("slow_handler:hold", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)
    ledger = LedgerReader(tmp_path / "ledger")
    assert ledger.sql("SELECT queue_id, queue_offset FROM deliveries").num_rows == 10
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0


def test_a_source_that_waits_for_the_broker_stops_at_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.client().put_topic("quiet", read_queue_nums=1, write_queue_nums=1)
    broker.client().put_group("watching")
    frame = source(
        spark, endpoint=broker.endpoint, subscribe="quiet", startingOffsets="earliest", group="watching"
    )
    batches = Batches()
    broker.client().send("quiet", b"x")
    stream = StartedStream(lambda: start(frame, tmp_path / "checkpoint", batches))

    def read() -> bool:
        assert stream.goes_on(), stream.failure()
        return bool(batches.rows)

    wait_until(read, WAIT_S)
    broker.kill()
    last_seen_elsewhere = time.monotonic()

    def asks_for_long() -> bool:
        """The query asks for offsets for longer than any answer takes."""
        nonlocal last_seen_elsewhere
        if not stream.query.status["message"].startswith("Getting offsets"):
            last_seen_elsewhere = time.monotonic()
        return time.monotonic() - last_seen_elsewhere > 2

    wait_until(asks_for_long, WAIT_S, lambda: stream.query.status)
    asked_at = time.monotonic()
    stream.stop()
    assert time.monotonic() - asked_at < AT_ONCE_S
    assert stream.failure() is None
