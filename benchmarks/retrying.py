"""P17: what one batch of retries costs at a long history of the ledger, against a short one.

Owns the histories and how a batch is timed: both groups run in one session, each gets the same number of
retries in one request, and the time is that of the micro-batch that carried them, by Spark's own progress
(planning, the look-up of what is known, the handler, the commit, the report).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.ledger import BATCH_ROWS, position
from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import Scale
from benchmarks.server import LakeMQ
from delta_tables.deliveries import ACK, DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import TABLES
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.original_position import ORIGIN, RETRY_TOPIC
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from lakemq.spark import session
from store_native.names import retry_topic
from tests.support.peer_jars import REPOSITORY
from tests.support.two_drivers import Driver
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_ROWS: Final = 10_000
RETRIES: Final = 1_024
AGES: Final = 16
"""RocketMQ's delays are sixteen ages of the messages that come back in one batch."""
BATCH_TIMEOUT_S: Final = 600.0
WARM_UPS: Final = 8
"""The JVM compiles the path of a batch while it runs: the first ones take three times as long."""


def retry_batch(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P17."""
    conf: dict[str, Any] = {"spark.driver.memory": "2g"}
    with ExitStack() as stack:
        spark = session("lakemq-bench", directory / "warehouse", master="local[2]", **conf)
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        long, short = (
            stack.enter_context(_Group(spark, lakemq, rows, directory))
            for rows in (scale.history_rows, SHORT_ROWS)
        )
        measurement = Measurement(
            *("P17", "retry-batch", 1.2, "ms"),
            f"{RETRIES:,} retries of {AGES} ages, {scale.history_rows:,} rows in the ledger",
            f"{SHORT_ROWS:,} rows",
            at_most=True,
        )
        yield Comparison(measurement, long.batch, short.batch, WARM_UPS)


class _Group:
    """A running group with a history."""

    def __init__(self, spark: SparkSession, lakemq: LakeMQ, rows: int, directory: Path) -> None:
        self._rows = rows
        self._group = f"group-of-{rows}"
        self._client = Client(lakemq.endpoint, timeout_s=60)
        self._runs = itertools.count()
        ledger = PathLedger(directory / f"ledger-{rows}")
        ledger.create(*TABLES)
        for first in range(0, rows, BATCH_ROWS):
            batch = _history(self._group, first, min(BATCH_ROWS, rows - first))
            write_deltalake(ledger.path(DELIVERIES), batch, mode="append")
        topic = f"new-{rows}"
        for name in (topic, retry_topic(self._group)):
            self._client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
        self._client.put_group(self._group)
        settings = ConsumeSettings(
            group=self._group,
            topics=(topic,),
            handler=HandlerTarget("benchmarks.trivial_handler:acknowledge", search_path=(str(REPOSITORY),)),
            ledger=ledger,
            endpoint=lakemq.endpoint,
            start="earliest",
            trigger="0 seconds",
        )
        self._driver = Driver(spark, self._client, settings, directory / f"driver-{rows}")

    def batch(self) -> float:
        """Sends one batch of retries and returns the milliseconds of the micro-batch that had it."""
        run = next(self._runs)
        again = retry_topic(self._group)
        age = self._rows // AGES
        lines = (
            json.dumps(
                {
                    "body": "x",
                    "reconsume_times": 1,
                    "properties": {RETRY_TOPIC: "old", ORIGIN: f"broker-a/0/{at % AGES * age + offset}"},
                }
            )
            for at in range(RETRIES)
            for offset in [run * (RETRIES // AGES) + at // AGES]
        )
        self._client.send_ndjson(again, "\n".join(lines).encode())
        stream, query, wanted = self._driver.stream, self._driver.stream.query, (run + 1) * RETRIES

        def arrived() -> bool:
            if any(position(each, "endOffset", again) >= wanted for each in query.recentProgress):
                return True
            if not stream.goes_on():
                raise RuntimeError(f"the group's stream ended: {stream.failure()}")
            return False

        wait_until(arrived, BATCH_TIMEOUT_S, "the batch of retries was not handled")
        carrying = (
            each
            for each in query.recentProgress
            if position(each, "endOffset", again)
            > max(position(each, "startOffset", again), wanted - RETRIES)
        )
        return float(sum(each["durationMs"]["triggerExecution"] for each in carrying))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.stop()
        self._client.close()


def _history(group: str, first: int, rows: int) -> pa.Table:
    """First deliveries of one queue, as a batch of the group job leaves them."""
    at = datetime.now(UTC)
    same: dict[str, Any] = {
        "consumer_group": group,
        "topic": "old",
        "broker_name": "broker-a",
        "queue_id": 0,
        "attempt": 1,
        "verdict": ACK,
        "started_at": at,
        "finished_at": at,
        "source_topic": "old",
        "source_queue_id": 0,
        "born_timestamp": at,
        "store_timestamp": at,
        "worker": "bench",
        "query_id": "before",
        "batch_id": first // BATCH_ROWS,
    }
    offsets = pa.array(range(first, first + rows), pa.int64())
    own = {
        "queue_offset": offsets,
        "source_queue_offset": offsets,
        "message_id": pa.array([f"{offset:032X}" for offset in range(first, first + rows)]),
    }
    columns = [
        own[field.name] if field.name in own else pa.repeat(pa.scalar(same.get(field.name), field.type), rows)
        for field in DELIVERIES.arrow_schema
    ]
    return pa.table(columns, schema=DELIVERIES.arrow_schema)
