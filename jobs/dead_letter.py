"""The dead_letter job: what is given up goes to `%DLQ%<group>` and to `dead_letters`, each once.

Owns the stream from `deliveries` (verdict DEAD). Never breaks: the message is on the DLQ topic before
its row is in the table, so a row is proof; a driver killed between the two sends the same rows under
the same keys again. Rows the table has are passed over, so a rebuilt checkpoint repeats none.
Started by `consume` beside the group job.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delta_tables.dead_letters import DEAD_LETTERS, FIRST_ATTEMPT_PROPERTY, from_deliveries
from delta_tables.deliveries import DEAD, DELIVERIES
from delta_tables.idempotent import append_once
from jobs.batch_gate import BatchGate
from jobs.checkpoint import StreamCheckpoint
from jobs.ledger_stream import decide_start
from jobs.origin import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN, dlq_topic
from jobs.retry import in_stable_order, send_once
from jobs.settings import ConsumeSettings

_CARRIED = f"""
  map_concat(
    map_filter(
      coalesce(properties, map()),
      (name, value) ->
        name NOT IN ('{DLQ_ORIGIN_TOPIC}', '{DLQ_ORIGIN_MESSAGE_ID}', '{ORIGIN}', '{FIRST_ATTEMPT_PROPERTY}')
    ),
    map(
      '{DLQ_ORIGIN_TOPIC}', topic,
      '{DLQ_ORIGIN_MESSAGE_ID}', message_id,
      '{ORIGIN}', concat_ws('/', broker_name, queue_id, queue_offset)
    )
  )
"""


class DeadLetterJob:
    """One group's dead_letter stream."""

    def __init__(
        self, spark: SparkSession, settings: ConsumeSettings, endpoint: str, gate: BatchGate
    ) -> None:
        """Puts the job together without starting it."""
        self._spark = spark
        self._settings = settings
        self._endpoint = endpoint
        self._gate = gate
        self._checkpoint = StreamCheckpoint(settings.checkpoint_of("dead_letter"))

    def decide_start(self) -> dict[str, str]:
        """Says where the stream begins; called before any stream of the group writes."""
        return decide_start(
            self._spark,
            self._settings.ledger,
            DELIVERIES,
            self._checkpoint,
            "SELECT min(given_up_at) AS oldest FROM pending_dead_letters "
            f"WHERE consumer_group = '{self._settings.group}'",
        )

    def start(self) -> StreamingQuery:
        """Starts the stream."""
        settings = self._settings
        rows = settings.ledger.read_stream(self._spark, DELIVERIES, self.decide_start())
        return (
            rows.where(f"consumer_group = '{settings.group}' AND verdict = '{DEAD}'")
            .writeStream.queryName(f"{settings.group} dead_letter")
            .foreachBatch(self._process)
            .option("checkpointLocation", self._checkpoint.location)
            .trigger(processingTime=settings.trigger)
            .start()
        )

    def _process(self, given_up: DataFrame, batch_id: int) -> None:
        with self._gate.batch():
            if given_up.isEmpty():
                return
            ledger = self._settings.ledger
            landed = ledger.read(self._spark, DEAD_LETTERS).select(*DEAD_LETTERS.key)
            # Evaluated twice below, with the same result: only this job appends to dead_letters.
            new = given_up.join(landed, list(DEAD_LETTERS.key), "left_anti").select(*given_up.columns)
            send_once(dead_messages(new, self._settings.group), self._endpoint, purpose="dlq")
            query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            append_once(
                from_deliveries(new).coalesce(1),
                ledger,
                DEAD_LETTERS,
                app_id=f"lakemq/{self._settings.group}/{query_id}",
                version=batch_id,
            )


def dead_messages(given_up: DataFrame, group: str) -> DataFrame:
    """Turns DEAD rows of `deliveries` into messages for the group's dead-letter topic."""
    return in_stable_order(given_up).selectExpr(
        f"'{dlq_topic(group)}' AS topic",
        "body",
        "keys",
        "tags",
        f"{_CARRIED} AS properties",
        "flag",
        "message_id",
        "attempt - 1 AS reconsume_times",
    )
