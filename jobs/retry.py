"""The retry job: what failed and has attempts left goes back to the broker, delayed, once.

Owns the stream from `deliveries` (verdict RETRY) to `%RETRY%<group>`. Never breaks: the sink's key is
(query, batch, partition, sequence), so a repeated batch must cut its rows in the same way; hence a
fixed number of partitions by hash of the key and an order within each, whatever the cluster's size.
Started by `consume` beside the group job, which reads the retry topic.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from delta_tables.deliveries import DELIVERIES, RETRY
from jobs.batch_gate import BatchGate
from jobs.checkpoint import StreamCheckpoint
from jobs.ledger_stream import decide_start
from jobs.origin import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC, retry_topic
from jobs.settings import ConsumeSettings

_PARTITIONS = 2
_POSITION = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")

_CARRIED = f"""
  map_concat(
    map_filter(
      coalesce(properties, map()),
      (name, value) ->
        name NOT IN ('{RETRY_TOPIC}', '{ORIGIN_MESSAGE_ID}', '{ORIGIN}', '{FIRST_ATTEMPT_PROPERTY}')
    ),
    map(
      '{RETRY_TOPIC}', topic,
      '{ORIGIN_MESSAGE_ID}', message_id,
      '{ORIGIN}', concat_ws('/', broker_name, queue_id, queue_offset),
      '{FIRST_ATTEMPT_PROPERTY}',
        coalesce(properties['{FIRST_ATTEMPT_PROPERTY}'], CAST(unix_millis(started_at) AS STRING))
    )
  )
"""


class RetryJob:
    """One group's retry stream."""

    def __init__(
        self, spark: SparkSession, settings: ConsumeSettings, endpoint: str, gate: BatchGate
    ) -> None:
        """Puts the job together without starting it."""
        self._spark = spark
        self._settings = settings
        self._endpoint = endpoint
        self._gate = gate
        self._checkpoint = StreamCheckpoint(settings.checkpoint_of("retry"))

    def decide_start(self) -> dict[str, str]:
        """Says where the stream begins; called before any stream of the group writes."""
        return decide_start(
            self._spark,
            self._settings.ledger,
            DELIVERIES,
            self._checkpoint,
            "SELECT min(failed_at) AS oldest FROM pending_retries "
            f"WHERE consumer_group = '{self._settings.group}'",
        )

    def start(self) -> StreamingQuery:
        """Starts the stream."""
        settings = self._settings
        rows = settings.ledger.read_stream(self._spark, DELIVERIES, self.decide_start())
        return (
            rows.where(f"consumer_group = '{settings.group}' AND verdict = '{RETRY}'")
            .writeStream.queryName(f"{settings.group} retry")
            .foreachBatch(self._process)
            .option("checkpointLocation", self._checkpoint.location)
            .trigger(processingTime=settings.trigger)
            .start()
        )

    def _process(self, failed: DataFrame, batch_id: int) -> None:
        with self._gate.batch():
            # Every commit of the ledger makes a batch here; most hold nothing that failed.
            if failed.isEmpty():
                return
            send_once(retried_messages(failed, self._settings.group), self._endpoint, purpose="retry")


def send_once(messages: DataFrame, endpoint: str, *, purpose: str) -> None:
    """Sends a batch's messages through the sink, exactly once however often the batch is run.

    Called inside foreachBatch: the sink takes the batch id from the task, and the name binds it to
    this checkpoint's query.
    """
    query_id = messages.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id is not None, "foreachBatch runs outside a streaming query"
    (
        messages.write.format("lakemq")
        .mode("append")
        .option("endpoint", endpoint)
        .option("name", f"{purpose}:{query_id}")
        .save()
    )


def in_stable_order(rows: DataFrame) -> DataFrame:
    """Cuts rows of `deliveries` the same way each time, whatever the number of cores."""
    return rows.repartition(_PARTITIONS, *_POSITION).sortWithinPartitions(*_POSITION)


def retried_messages(failed: DataFrame, group: str) -> DataFrame:
    """Turns failed attempts into the messages that come back.

    The id, keys, tags and body stay; the properties say where the message comes from, so that the
    next attempt is keyed by the original position.
    """
    return in_stable_order(failed).selectExpr(
        f"'{retry_topic(group)}' AS topic",
        "body",
        "keys",
        "tags",
        f"{_CARRIED} AS properties",
        "flag",
        "message_id",
        "attempt AS reconsume_times",
        "delay_level",
    )
