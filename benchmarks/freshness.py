"""P10: from the POST of a message to its row in `deliveries`, against Kafka, Spark and Delta.

Owns both paths, the pace of what is sent and how a row's time is read: that of the first commit of the table
that has it. Each side runs one query with a trigger of a second and has handled a message before it is timed.
Kafka's path appends position and time of each record with Spark's own Delta sink: no handler, no exactly-once
key, no progress report.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.reading import PARTITIONS, bench_session
from benchmarks.scale import Scale
from benchmarks.server import LakeMQ
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.run_loop import RunLoop
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from tests.support.peer_brokers import Kafka
from tests.support.peer_jars import REPOSITORY
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER: Final = "1 second"
RATE: Final = 50
"""Messages a second: what is measured is the wait, not the load."""
BODY: Final = b"x" * 1024
TIMEOUT_S: Final = 300.0


def fresh_rows(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P10."""
    with ExitStack() as stack:
        spark = bench_session(directory)
        kafka = stack.enter_context(Kafka(directory / "kafka"))
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        measurement = Measurement(
            *("P10", "fresh-rows-p95", 0.7, "ms", f"rows committed to Delta, trigger {TRIGGER}, {RATE}/s"),
            "Kafka, Spark's Kafka source, Delta's sink",
            at_most=True,
        )
        ours = _of_group(spark, lakemq, scale.fresh_rows, directory)
        yield Comparison(measurement, ours, _of_kafka(spark, kafka, scale.fresh_rows, directory))


def _of_group(spark: SparkSession, lakemq: LakeMQ, rows: int, directory: Path) -> Measure:
    def measure() -> float:
        ledger = Path(tempfile.mkdtemp(prefix="fresh-", dir=directory))
        topic = group = ledger.name
        lakemq.put_topic(topic, PARTITIONS)
        found: list[float] = []
        failed: list[Exception] = []

        def send(loop: RunLoop) -> None:
            def go() -> None:
                try:
                    with Client(lakemq.endpoint) as client:
                        table = ledger / DELIVERIES.name
                        found.extend(_measured(table, _key, rows, lambda count: _post(client, topic, count)))
                except Exception as error:  # noqa: BLE001 - of a thread: raised where it is waited for
                    failed.append(error)
                finally:
                    loop.stop()

            threading.Thread(target=go).start()

        settings = ConsumeSettings(
            group=group,
            topics=(topic,),
            handler=HandlerTarget("benchmarks.trivial_handler:acknowledge", search_path=(str(REPOSITORY),)),
            ledger=ledger_at(str(ledger)),
            endpoint=lakemq.endpoint,
            path=str(lakemq.store),
            start="earliest",
            trigger=TRIGGER,
        )
        consume(settings, lambda: spark, started=send)
        if failed:
            raise failed[0]
        shutil.rmtree(ledger, ignore_errors=True)
        return _p95_ms(found)

    return measure


def _of_kafka(spark: SparkSession, kafka: Kafka, rows: int, directory: Path) -> Measure:
    def measure() -> float:
        target = Path(tempfile.mkdtemp(prefix="kafka-", dir=directory))
        topic = target.name
        kafka.load("create", topic=topic, partitions=PARTITIONS)
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        frame = spark.readStream.format("kafka").options(**options).load()
        frame = frame.selectExpr(
            "topic", "partition", "offset", "timestamp", "current_timestamp() AS read_at"
        )
        writer = frame.writeStream.format("delta").option("checkpointLocation", str(target / "_checkpoint"))
        query = writer.trigger(processingTime=TRIGGER).start(str(target / "rows"))
        try:

            def send(count: int) -> None:
                kafka.load("produce", topic=topic, size=len(BODY), count=count, warmup=0, rate=RATE, linger=0)

            return _p95_ms(_measured(target / "rows", _timestamp, rows, send))
        finally:
            query.stop()
            shutil.rmtree(target, ignore_errors=True)

    return measure


def _post(client: Client, topic: str, count: int) -> None:
    """Sends messages whose key is the time in microseconds, each at its own moment."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        client.send(topic, BODY, keys=[str(time.time_ns() // 1_000)])


def _measured(
    table: Path, sent_us: Callable[[Any], list[int]], rows: int, send: Callable[[int], None]
) -> list[float]:
    """Has one message handled, then as many as are measured; returns the seconds of each until its row."""
    send(1)
    wait_until(lambda: len(_rows(table, sent_us)) == 1, TIMEOUT_S)
    first = _rows(table, sent_us).keys()
    send(rows)
    wait_until(lambda: len(_rows(table, sent_us)) == rows + 1, TIMEOUT_S)
    return [seconds for row, seconds in _rows(table, sent_us).items() if row not in first]


def _rows(table: Path, sent_us: Callable[[Any], list[int]]) -> dict[tuple[int, int], float]:
    """Of each row of a table, by queue and offset, the seconds from its sending to its first commit."""
    found: dict[tuple[int, int], float] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        at = commit.stat().st_mtime
        for line in commit.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is None:
                continue
            rows = pq.read_table(table / added["path"], partitioning=None)
            kafka = "partition" in rows.column_names
            queues, offsets = ("partition", "offset") if kafka else ("queue_id", "queue_offset")
            keys = zip(rows.column(queues).to_pylist(), rows.column(offsets).to_pylist(), strict=True)
            for key, sent in zip(keys, sent_us(rows), strict=True):
                found.setdefault(key, at - sent / 1_000_000)
    return found


def _key(rows: Any) -> list[int]:
    return [int(keys[0]) for keys in rows.column("keys").to_pylist()]


def _timestamp(rows: Any) -> list[int]:
    return [round(at.timestamp() * 1_000_000) for at in rows.column("timestamp").to_pylist()]


def _p95_ms(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1] * 1_000
