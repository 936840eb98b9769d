"""Rows of `deliveries` as messages that go back to the broker: what they carry, and sent once.

Owns what a retried message and a dead letter have in common.

Invariants: the sink's key is (query, batch, partition, sequence), so a repeated batch must cut its rows in
the same way; hence a fixed number of partitions by hash of the key and an order within each, whatever the
cluster's size.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY

_PARTITIONS = 2
_POSITION = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")

POSITION_SQL = "concat_ws('/', broker_name, queue_id, queue_offset)"
"""The value of the property LMQ_ORIGIN, over a row of `deliveries`."""


def carried_properties(added: Mapping[str, str]) -> str:
    """SQL of a row's properties with those that say where its message comes from.

    Args:
        added: name -> SQL of the value; they replace what an earlier attempt brought along.
    """
    replaced = ", ".join(f"'{name}'" for name in {**added, FIRST_ATTEMPT_PROPERTY: ""})
    kept = f"map_filter(coalesce(properties, map()), (name, value) -> name NOT IN ({replaced}))"
    return f"map_concat({kept}, {lineage(added)})"


def lineage(added: Mapping[str, str]) -> str:
    """SQL of a map of nothing but the added properties."""
    pairs = ", ".join(f"'{name}', {value}" for name, value in added.items())
    return f"map({pairs})"


def messages_for(topic: str, rows: DataFrame, *more: str) -> DataFrame:
    """Turns rows of `deliveries` into the sink's columns, cut the same way each time.

    Args:
        topic: where the messages go; id, keys, tags, properties, flag and body are the rows'.
        rows: the rows.
        more: further columns of the sink, as SQL with a name.
    """
    cut = rows.repartition(_PARTITIONS, *_POSITION).sortWithinPartitions(*_POSITION)
    return cut.selectExpr(
        f"'{topic}' AS topic", "body", "keys", "tags", "properties", "flag", "message_id", *more
    )


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
        # Of several brokers any will do: what is stored on two is one attempt in the ledger.
        .option("brokerAway", "elsewhere")
        .option("name", f"{purpose}:{query_id}")
        .save()
    )
