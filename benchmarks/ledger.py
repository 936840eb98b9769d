"""P9: the group job with a trivial vectorised handler, to the ledger, against a plain Delta append.

Owns both jobs. The plain one reads the same messages from the same local store with the same batch bound
and appends rows of the ledger's columns with Spark's own Delta sink: no handler, no retry, no exactly-once
key, no progress report. Timed alike: the micro-batches that carried rows.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.reading import bench_session, fill, timed_query
from benchmarks.scale import Scale
from benchmarks.server import LakeMQ
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.run_loop import RunLoop
from jobs.settings import ConsumeSettings
from tests.support.peer_jars import REPOSITORY
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS: Final = 200_000
BODY_BYTES: Final = 1024
RUN_TIMEOUT_S: Final = 3600.0


def group_job(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P9."""
    with ExitStack() as stack:
        spark = bench_session(directory)
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        topic = fill(lakemq, None, BODY_BYTES, scale.ledger_rows)
        against = "a plain Delta append of the same rows"
        measurement = Measurement("P9", "group-job", 1.1, "rows/s", "rows committed to Delta", against)
        ours = _consume(spark, lakemq, topic, scale.ledger_rows, directory)
        yield Comparison(measurement, ours, _append(spark, lakemq, topic, scale.ledger_rows, directory))


def _consume(spark: SparkSession, lakemq: LakeMQ, topic: str, rows: int, directory: Path) -> Measure:
    def measure() -> float:
        batches = run_group(
            *(spark, lakemq, topic, rows, directory, "benchmarks.trivial_handler:acknowledge"),
            trigger="0 seconds",
            max_messages_per_batch=BATCH_ROWS,
        )
        return rows / (sum(float(batch["durationMs"]["triggerExecution"]) for batch in batches) / 1000)

    return measure


def run_group(
    spark: SparkSession,
    lakemq: LakeMQ,
    topic: str,
    rows: int,
    directory: Path,
    handler: str,
    **settings: Any,
) -> list[Any]:
    """Runs a new group with a ledger of its own until it has handled a topic.

    Args:
        spark, lakemq: Where it runs, and what it reads: the store by its path.
        topic, rows: What to handle; with the last of the rows it ends.
        directory: Where its ledger is for as long as it runs.
        handler: As ``module:function``.
        settings: Of the group, other than its defaults.

    Returns:
        Spark's progress of the micro-batches that carried rows.
    """
    ledger = Path(tempfile.mkdtemp(prefix="ledger-", dir=directory))
    group = ledger.name
    batches: list[Any] = []

    def watch(loop: RunLoop) -> None:
        query = next(query for query in spark.streams.active if query.name == f"{group} group")

        def wait() -> None:
            try:
                wait_until(
                    lambda: not query.isActive or _reached(query.recentProgress, topic, rows), RUN_TIMEOUT_S
                )
                batches.extend(progress for progress in query.recentProgress if _carried(progress, topic))
            finally:
                loop.stop()

        threading.Thread(target=wait).start()

    of_the_group = ConsumeSettings(
        group=group,
        topics=(topic,),
        handler=HandlerTarget(handler, search_path=(str(REPOSITORY),)),
        ledger=ledger_at(str(ledger)),
        endpoint=lakemq.endpoint,
        path=str(lakemq.store),
        start="earliest",
        **settings,
    )
    consume(of_the_group, lambda: spark, started=watch)
    shutil.rmtree(ledger, ignore_errors=True)
    return batches


def _reached(progresses: list[Any], topic: str, rows: int) -> bool:
    """Tells by offsets whether a finished batch ends behind the last row; numInputRows never got there."""
    return any(position(progress, "endOffset", topic) >= rows for progress in progresses)


def _carried(progress: Any, topic: str) -> bool:
    return position(progress, "endOffset", topic) > position(progress, "startOffset", topic)


def position(progress: Any, side: str, topic: str) -> int:
    """Returns the sum of the topic's offsets; queues begin at 0, so it is the rows before that point."""
    offset = progress["sources"][0][side]
    if isinstance(offset, str):
        offset = json.loads(offset)
    topics = (offset or {}).get("topics", {})
    brokers = topics.get(topic, {}).get("brokers", {})
    return sum(position for queues in brokers.values() for position in queues.values())


def _append(spark: SparkSession, lakemq: LakeMQ, topic: str, rows: int, directory: Path) -> Measure:
    from pyspark.sql import functions as F

    known = {
        "consumer_group": F.lit("bench"),
        "attempt": F.lit(1),
        "verdict": F.lit("ACK"),
        "started_at": F.current_timestamp(),
        "finished_at": F.current_timestamp(),
        "source_topic": F.col("topic"),
        "source_queue_id": F.col("queue_id"),
        "source_queue_offset": F.col("queue_offset"),
        "worker": F.lit("bench"),
        "query_id": F.lit("bench"),
        "batch_id": F.lit(0),
    }
    read = {"topic", "broker_name", "queue_id", "queue_offset", "message_id", "keys", "tags"}
    read |= {"born_timestamp", "store_timestamp"}

    def measure() -> float:
        target = Path(tempfile.mkdtemp(prefix="plain-", dir=directory))
        source = spark.readStream.format("lakemq").options(
            path=str(lakemq.store),
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(BATCH_ROWS),
        )
        columns = []
        for field in spark.createDataFrame([], DELIVERIES.ddl).schema:
            value = known.get(field.name, F.col(field.name) if field.name in read else F.lit(None))
            columns.append(value.cast(field.dataType).alias(field.name))
        writer = source.load().select(*columns).writeStream.format("delta").outputMode("append")
        writer = writer.option("checkpointLocation", str(target / "_checkpoint")).trigger(availableNow=True)
        rate = timed_query(writer.start(str(target / "rows")), rows)
        shutil.rmtree(target, ignore_errors=True)
        return rate

    return measure
