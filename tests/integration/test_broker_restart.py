"""The broker is killed and started again under a running query and a running group.

Contract: both go on by themselves, no message is missing or doubled. LAKEMQ_RESTARTS sets how often it
happens (default 2).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.views import TABLES
from jobs.handler.loader import HandlerTarget
from jobs.runtime.started_stream import StartedStream
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import TRIGGER, Batches, source, start
from tests.support.two_drivers import Driver
from tests.support.waiting import wait_until

RESTARTS = int(os.environ.get("LAKEMQ_RESTARTS", "2"))
EACH = 50
LEASE_MS = 1_000
WAIT_S = 240.0


def test_a_query_and_a_group_go_on_over_restarts_of_their_broker(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    client.put_topic("steady", read_queue_nums=2, write_queue_nums=2)
    client.put_group("watching")
    client.put_group("working")
    (tmp_path / "steady_handler.py").write_text("def handle(message): pass\n")
    settings = ConsumeSettings(
        "working",
        ("steady",),
        HandlerTarget("steady_handler:handle", "auto", (str(tmp_path),)),
        ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        trigger=TRIGGER,
    )
    settings.ledger.create(*TABLES)
    send(client, 0)
    batches = Batches()
    frame = source(
        spark, endpoint=broker.endpoint, subscribe="steady", startingOffsets="earliest", group="watching"
    )
    stream = StartedStream(lambda: start(frame, tmp_path / "checkpoint", batches))
    driver = Driver(spark, client, settings, tmp_path / "driver", ttl_ms=LEASE_MS, outage_timeout_s=WAIT_S)

    def await_all(wanted: int) -> None:
        """Waits until query and group are through: the group reports after its ledger's commit."""

        def all_there() -> bool:
            assert stream.goes_on(), stream.failure()
            assert driver.stream.goes_on(), driver.stream.failure()
            return len(batches.rows) >= wanted and reported(client) >= wanted

        wait_until(
            all_there,
            WAIT_S,
            lambda: f"the query is at {len(batches.rows)}, the group at {reported(client)} of {wanted}",
        )

    try:
        await_all(EACH)
        for number in range(1, RESTARTS + 1):
            broker.kill()
            wait_until(partial(_is_past, time.monotonic() + 2 * LEASE_MS / 1000))  # the lease has run out
            broker.start()
            send(client, number)
            await_all((number + 1) * EACH)
    finally:
        stream.stop()
        driver.stop()

    wanted = (RESTARTS + 1) * EACH
    seen = Counter((row.queue_id, row.queue_offset) for row in batches.rows)
    assert len(seen) == wanted
    assert set(seen.values()) == {1}
    ledger = LedgerReader(tmp_path / "ledger")
    ((rows, keys),) = [
        tuple(row.values())
        for row in ledger.sql(
            "SELECT count(*) AS n, count(DISTINCT concat(queue_id, '/', queue_offset)) AS d FROM deliveries"
        ).to_pylist()
    ]
    assert (rows, keys) == (wanted, wanted)
    assert ledger.sql("SELECT * FROM delivery_gaps").num_rows == 0


def send(client: Client, number: int) -> None:
    client.send_ndjson("steady", "\n".join(f'{{"body":"{number}-{n}"}}' for n in range(EACH)).encode())


def _is_past(at_s: float) -> bool:
    return time.monotonic() > at_s


def reported(client: Client) -> int:
    """How far the group has told the broker that it is."""
    offsets = client.group_offsets("working")
    return sum(offset for (topic, _), offset in offsets.items() if topic == "steady")


def test_a_query_that_starts_where_nobody_answers_says_so_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(Exception, match="no connection"):
        source(spark, endpoint="http://127.0.0.1:9", subscribe="t").writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path)
        ).start().awaitTermination()
    assert time.monotonic() - began < 60
