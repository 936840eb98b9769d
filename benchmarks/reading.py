"""P7 and P8: Spark's readStream over LakeMQ (local store; HTTP Arrow) against Spark's own Kafka source.

Owns the filling of both sides with the same rows, the queries and how a run is timed: AvailableNow into the
noop sink, the time of the micro-batches that carried rows as Spark's own progress tells it (planning and
offset log included, session start not).
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.scale import Scale
from benchmarks.server import LakeMQ
from lakemq.client import Client
from lakemq.spark import session
from tests.support.peer_brokers import Kafka
from tests.support.peer_jars import jar_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS: Final = 4
ARROW_ROWS: Final = 5_000
SPARK_WARM_UPS: Final = 2
KAFKA: Final = "Spark's Kafka source, its default columns"
PROMISE: Final = "all rows, in order per queue"
# name -> (goal at 1 KB, goal at 100 B)
GOALS: Final = {"kafka-layout": (2.5, 2.2), "default-columns": (2.2, 1.8), "body-only": (2.5, 2.8)}
HTTP_GOAL: Final = 2.0


def local(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P7 for rows of 1 KB and of 100 B."""
    with ExitStack() as stack:
        spark = bench_session(directory)
        kafka = stack.enter_context(Kafka(directory / "kafka"))
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        for index, (size, rows) in enumerate(scale.rows):
            topic = fill(lakemq, kafka, size, rows)
            theirs = _read_kafka(spark, kafka, topic, rows, directory)
            for name, goals in GOALS.items():
                measurement = Measurement("P7", f"{name}-{size}B", goals[index], "rows/s", PROMISE, KAFKA)
                options = {"path": str(lakemq.store), "subscribe": topic}
                if name == "kafka-layout":
                    options["layout"] = "kafka"
                schema = "body binary" if name == "body-only" else None
                ours = _read_lakemq(spark, options, schema, rows, directory)
                yield Comparison(measurement, ours, theirs, SPARK_WARM_UPS)


def over_http(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P8: the same over HTTP, layout=kafka."""
    with ExitStack() as stack:
        spark = bench_session(directory)
        kafka = stack.enter_context(Kafka(directory / "kafka"))
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        for size, rows in scale.rows:
            topic = fill(lakemq, kafka, size, rows)
            measurement = Measurement("P8", f"http-kafka-layout-{size}B", HTTP_GOAL, "rows/s", PROMISE, KAFKA)
            options = {"endpoint": lakemq.endpoint, "subscribe": topic, "layout": "kafka"}
            ours = _read_lakemq(spark, options, None, rows, directory)
            theirs = _read_kafka(spark, kafka, topic, rows, directory)
            yield Comparison(measurement, ours, theirs, SPARK_WARM_UPS)


def bench_session(directory: Path) -> SparkSession:
    """Returns the session of P7-P9: two threads, 2 GB, Kafka's source beside Delta."""
    conf: dict[str, Any] = {"spark.driver.memory": "2g", "spark.jars": jar_list("spark_kafka")}
    return session("lakemq-bench", directory / "warehouse", master="local[2]", **conf)


def fill(lakemq: LakeMQ, kafka: Kafka | None, size: int, rows: int) -> str:
    """Writes the same number of rows of the same size to a new topic on both sides; returns its name."""
    topic = f"rows-{size}"
    lakemq.put_topic(topic, PARTITIONS)
    body = bytes(ord("a") + at % 26 for at in range(size))
    requests, rest = divmod(rows, ARROW_ROWS)
    with Client(lakemq.endpoint, timeout_s=60) as client:
        for count in [ARROW_ROWS] * requests + ([rest] if rest else []):
            client.send_arrow(topic, _arrow(body, count))
    if kafka is not None:
        kafka.load("create", topic=topic, partitions=PARTITIONS)
        kafka.load("produce", topic=topic, size=size, count=rows, warmup=0)
    return topic


def timed_query(query: StreamingQuery, rows: int) -> float:
    """Waits for an AvailableNow query and returns its rows/s.

    Raises:
        RuntimeError: It read another number of rows.
    """
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
    read = sum(progress["numInputRows"] for progress in batches)
    if read != rows:
        raise RuntimeError(f"the query read {read} rows of {rows}")
    seconds = sum(int(progress["durationMs"]["triggerExecution"]) for progress in batches) / 1000
    return rows / seconds


def _read_lakemq(
    spark: SparkSession, options: dict[str, str], schema: str | None, rows: int, directory: Path
) -> Measure:
    def measure() -> float:
        reader = spark.readStream.format("lakemq").options(startingOffsets="earliest", **options)
        return _to_noop((reader.schema(schema) if schema else reader).load(), rows, directory)

    return measure


def _read_kafka(spark: SparkSession, kafka: Kafka, topic: str, rows: int, directory: Path) -> Measure:
    def measure() -> float:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        return _to_noop(spark.readStream.format("kafka").options(**options).load(), rows, directory)

    return measure


def _to_noop(frame: DataFrame, rows: int, directory: Path) -> float:
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=directory)
    try:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        return timed_query(writer.trigger(availableNow=True).start(), rows)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _arrow(body: bytes, count: int) -> bytes:
    table = pa.table({"body": pa.array([body] * count, pa.binary())})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
