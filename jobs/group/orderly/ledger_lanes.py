"""What the ledger says of a group's lanes.

Owns the queries: what waits at a start, what a batch has done, and the parked messages that go on.

Invariants: bodies are read of messages that go on, and of no others but those between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.deliveries import PARKED, RETRY, SHARDING_KEY_PROPERTY
from delta_tables.known_keys import spans
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import within_sql
from delta_tables.ledger_query import select
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.waiting import LaneRow
from jobs.group.slice_tasks import source_schema
from store_native.errors import from_code
from structured_streaming.spark_versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCK_MARGIN = timedelta(minutes=10)

_LANE = "topic, broker_name, queue_id, sharding_key, queue_offset, attempt"
_WAITING = f"""\
SELECT {_LANE}, '{RETRY}' AS verdict FROM pending_retries WHERE consumer_group = '{{group}}'
UNION ALL
SELECT {_LANE}, '{PARKED}' AS verdict FROM parked_messages WHERE consumer_group = '{{group}}'"""
_OF_BATCH = f"""\
SELECT topic, broker_name, queue_id, properties['{SHARDING_KEY_PROPERTY}'] AS sharding_key,
  queue_offset, attempt, verdict
FROM deliveries
WHERE consumer_group = '{{group}}' AND query_id = '{{query_id}}' AND batch_id = {{batch_id}}
  AND finished_at >= CAST('{{since}}' AS TIMESTAMP)"""
_ANY_PARKED = (
    f"SELECT 1 AS one FROM deliveries WHERE consumer_group = '{{group}}' AND verdict = '{PARKED}' LIMIT 1"
)
_READ = {
    "topic": "source_topic",
    "broker_name": "source_broker_name",
    "queue_id": "source_queue_id",
    "queue_offset": "source_queue_offset",
    "reconsume_times": "attempt - 1",
}
"""Columns of a message as it was read, where those of its row are others."""


def waiting_rows(ledger: LedgerLocation, group: str, spark: SparkSession) -> list[LaneRow]:
    """What a group's lanes wait for now."""
    return [_lane_row(*row) for row in select(ledger, _WAITING.format(group=group), spark)]


def parked_messages(ledger: LedgerLocation, group: str, spark: SparkSession) -> int:
    """How many messages of a group are parked; quick where none ever was."""
    if not select(ledger, _ANY_PARKED.format(group=group), spark):
        return 0
    text = f"SELECT count(*) AS parked FROM parked_messages WHERE consumer_group = '{group}'"
    ((parked,),) = select(ledger, text, spark)
    return int(parked)


def refuse_parked(ledger: LedgerLocation, group: str, spark: SparkSession) -> None:
    """Refuses a group with parked messages; for modes that do not look for them.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, with what to do.
    """
    parked = parked_messages(ledger, group, spark)
    if parked:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"{parked} messages of group {group} are parked, which only orderly mode handles: run it with "
            "--mode orderly --until-idle 10s until none is",
        )


def rows_of_batch(
    ledger: LedgerLocation, group: str, query_id: str, batch_id: int, began: datetime, spark: SparkSession
) -> list[LaneRow]:
    """What a batch has put into the ledger.

    Args:
        ledger: the ledger.
        group: the group.
        query_id: the streaming query.
        batch_id: its batch.
        began: when the batch began, by this machine's clock; spares the reader the files of before.
        spark: the session, for a ledger in a catalog.
    """
    since = (began - _CLOCK_MARGIN).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    text = _OF_BATCH.format(group=group, query_id=query_id, batch_id=batch_id, since=since)
    return [_lane_row(*row) for row in select(ledger, text, spark)]


def parked_batch(
    ledger: LedgerLocation, group: str, chosen: Mapping[Lane, Collection[Attempt]], spark: SparkSession
) -> pa.RecordBatch:
    """Parked messages as they were read when they were parked.

    Args:
        ledger: the ledger.
        group: the group.
        chosen: which of them.
        spark: the session, for a ledger in a catalog.
    """
    wanted = {(*lane[:3], *attempt) for lane, attempts in chosen.items() for attempt in attempts}
    schema = arrow_schema(source_schema())
    if not wanted:
        return pa.RecordBatch.from_pylist([], schema=schema)
    within = " OR ".join(within_sql(span) for span in spans(row[:4] for row in wanted))
    columns = ", ".join(f"{_READ.get(name, name)} AS read_{name}" for name in schema.names)
    rows = select(
        ledger,
        f"SELECT topic, broker_name, queue_id, queue_offset, attempt, {columns} FROM deliveries "
        f"WHERE consumer_group = '{group}' AND verdict = '{PARKED}' AND ({within})",
        spark,
    )
    found = {row[:5]: row[5:] for row in rows if row[:5] in wanted}
    messages = [found[key] for key in sorted(found)]
    columns_of = zip(*messages, strict=True) if messages else [()] * len(schema.names)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns_of, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lane_row(
    topic: str,
    broker_name: str,
    queue_id: int,
    sharding_key: str | None,
    queue_offset: int,
    attempt: int,
    verdict: str,
) -> LaneRow:
    return LaneRow(Lane(topic, broker_name, queue_id, sharding_key), Attempt(queue_offset, attempt), verdict)
