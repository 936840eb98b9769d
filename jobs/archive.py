"""The archive job: topics land in the table `messages`.

Owns one stream from the source to Delta's own streaming sink, which commits a batch once.

Invariants: one row per stored message; a lost checkpoint begins where the table ends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from pathlib import Path
from posixpath import normpath
from typing import Literal, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from delta_tables.ledger.location import LedgerLocation
from delta_tables.messages import MESSAGES
from jobs.archive_start import after_the_last_row, behind, refuse_rows_behind
from jobs.consume import name_jvm, sole_writer
from jobs.lineage.datasets import ledger_dataset, topic_dataset
from jobs.lineage.job_run import job_run
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.query_start import start_of
from jobs.runtime.run_loop import RunLoop
from jobs.runtime.started_stream import StartedStream
from lakemq.client import Client
from store_native.errors import from_code
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue


@dataclass(frozen=True)
class ArchiveSettings:
    """The settings of `lakemq archive`.

    Attributes:
        topics: topics to land.
        ledger: where `messages` is.
        checkpoint: the stream's checkpoint; None puts it under the ledger.
        endpoint: the broker; None takes the client's default.
        path: a local store to read from by mapping its files.
        trigger: interval of the micro-batches, or `availableNow`: land what is there and end.
        max_messages_per_batch: bound of one micro-batch.
        on_data_loss: what expired or is damaged ends the job, or is passed over.
    """

    topics: tuple[str, ...]
    ledger: LedgerLocation
    checkpoint: Path | None = None
    endpoint: str | None = None
    path: str | None = None
    trigger: str = "10 seconds"
    max_messages_per_batch: int = 200_000
    on_data_loss: Literal["fail", "skip"] = "fail"

    @property
    def checkpoint_directory(self) -> Path:
        """Where the stream's checkpoint is."""
        if self.checkpoint is not None:
            return self.checkpoint
        if self.ledger.checkpoints is None:
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"the ledger {self.ledger} is in a catalog and needs --checkpoint (a mounted directory); a "
                f"directory of that name is --ledger ./{self.ledger}",
            )
        return self.ledger.checkpoints / "archive"


class Landed(NamedTuple):
    """What of a topic a run has landed.

    Attributes:
        rows: messages that came.
        missing: messages that it passed over, since they were gone.
    """

    rows: int
    missing: int


def archive(
    settings: ArchiveSettings,
    make_session: Callable[[], SparkSession],
    *,
    on_end: Callable[[Mapping[str, Landed]], None] | None = None,
) -> None:
    """Lands topics until stopped, or with the trigger `availableNow` until all that is there has landed.

    Args:
        settings: the archive's settings.
        make_session: makes the Spark session.
        on_end: called at the end with what of each topic has come; without it nobody counts.

    Raises:
        LakeMQError: wrong settings, another writer of `messages`, or a stream that failed.
        SparkEnded: a signal asked it to stop, and ended Spark with it.
    """
    directory = settings.checkpoint_directory
    with Client(settings.endpoint) as client, sole_writer(settings.ledger, (MESSAGES,)) as locks:
        for topic in settings.topics:
            client.topic(topic)
        directory.mkdir(parents=True, exist_ok=True)
        spark = make_session()
        name_jvm(locks, spark)
        loop = RunLoop(spark, BatchGate())
        with loop.stopped_by_signals():
            before = StreamCheckpoint(directory).reached()
            settings.ledger.create_for((MESSAGES,), (), spark)
            name = f"archive.{normpath(str(settings.ledger))}"
            is_streaming = settings.trigger != "availableNow"
            topics = [topic_dataset(client.endpoint, topic) for topic in settings.topics]
            table = partial(ledger_dataset, settings.ledger, MESSAGES, spark)
            with job_run("ARCHIVE", name, is_streaming, topics, lambda: [table()], spark):
                loop.run([StartedStream(lambda: start_archive(spark, settings, client))])
        if on_end is not None:
            on_end(_landed_since(spark, settings, before))


def start_archive(spark: SparkSession, settings: ArchiveSettings, client: Client) -> StreamingQuery:
    """Starts the archive stream; its table is there."""
    checkpoint = StreamCheckpoint(settings.checkpoint_directory)
    brokers = GroupBrokers(client)
    refuse_rows_behind(spark, settings.ledger, settings.topics, checkpoint, brokers)
    start = start_of(
        checkpoint, brokers, lambda: after_the_last_row(spark, settings.ledger, settings.topics, brokers)
    )
    source = (
        spark.readStream.format("lakemq")
        .schema(MESSAGES.ddl)
        .option("subscribe", ",".join(settings.topics))
        .option("endpoint", client.endpoint)
        .option("startingOffsets", json.dumps(start))
        .option("brokersJoin", "true")
        .option("retryTimeoutMs", str(brokers.retry_timeout_ms))
        .option("maxOffsetsPerTrigger", str(settings.max_messages_per_batch))
        .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
        # The table's key is the position: one that means another message now is never passed over.
        .option("failOnReusedOffsets", "true")
    )
    if settings.path is not None:
        source = source.option("path", settings.path)
    rows = source.load()
    context = getattr(spark, "sparkContext", None)
    if context is not None:  # serverless has none, and sizes its files by itself
        rows = rows.coalesce(context.defaultParallelism)
    return settings.ledger.append_stream(
        rows,
        MESSAGES,
        trigger=settings.trigger,
        checkpointLocation=checkpoint.prepare(),
        queryName="archive",
    )


def _landed_since(
    spark: SparkSession, settings: ArchiveSettings, before: ClusterOffsets | None
) -> dict[str, Landed]:
    """What of each topic is in the table behind where a run began."""
    checkpoint = StreamCheckpoint(settings.checkpoint_directory)
    begin: Mapping[MessageQueue, int]
    if before is not None:
        begin = before.queues
    else:
        offsets = checkpoint.start(dict)["offsets"]
        begin = {
            MessageQueue(topic, key.rpartition("/")[0], int(key.rpartition("/")[2])): at
            for topic, keys in offsets.items()
            for key, at in keys.items()
        }
    after = checkpoint.reached()
    come = [
        behind(queue, at)
        for queue in (begin if after is None else after.queues)
        for at in [_at(begin, queue) or 0]
        if after is None or at < after.queues[queue]
    ]
    counted: Counter[MessageQueue] = Counter()
    first: dict[MessageQueue, int] = {}
    if come:
        rows = settings.ledger.read(spark, MESSAGES).where(reduce(or_, come))
        by_queue = rows.groupBy("topic", "broker_name", "queue_id")
        for row in by_queue.agg(F.count("*"), F.min("queue_offset")).collect():
            counted[MessageQueue(*row[:3])], first[MessageQueue(*row[:3])] = row[3:]
    known = {queue.broker_name for queue in begin}

    def began(queue: MessageQueue) -> int:
        """A queue that came meanwhile began at its first message; on a broker that did, at its oldest."""
        at = _at(begin, queue)
        if at is None:
            at = 0 if queue.broker_name in known or known == {""} else first.get(queue, end_of[queue])
        return at

    end_of = {} if after is None else after.queues
    missing = {queue: end - began(queue) - counted[queue] for queue, end in end_of.items()}
    return {
        topic: Landed(
            sum(rows for queue, rows in counted.items() if queue.topic == topic),
            max(0, sum(gone for queue, gone in missing.items() if queue.topic == topic)),
        )
        for topic in settings.topics
    }


def _at(begin: Mapping[MessageQueue, int], queue: MessageQueue) -> int | None:
    """Where a run began on a queue; of one broker a start names the queues alone."""
    return begin.get(queue, begin.get(queue._replace(broker_name="")))
