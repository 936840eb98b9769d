"""Whether a group's checkpoint is older than its ledger.

Owns the two ways to tell: the ledger has batches of the checkpoint's own query that it never planned (it was
put back from a backup), or rows of another query behind where it stands (the group went on from another
checkpoint, on another host say).

Invariants: going on from such a checkpoint would handle messages again that the ledger has, and write their
rows a second time, or take messages for handled that are not; so it is refused before anything is done. A
lost checkpoint costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from delta_tables.deliveries import DELIVERIES
from delta_tables.idempotent import newest_batch
from delta_tables.known_keys import MOST_SPANS
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import quoted
from delta_tables.ledger_query import select
from jobs.group.given_again import NO_END, NO_OTHER_NAMES, LedgerNames
from jobs.runtime.checkpoint import StreamCheckpoint
from store_native.errors import InvalidRequest, from_code
from store_native.names import is_retry_topic
from structured_streaming.offsets import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEHIND = """\
SELECT source_topic, source_queue_id, min(source_queue_offset) AS first FROM deliveries
WHERE consumer_group = '{group}' AND query_id <> '{query_id}' AND ({queues})
GROUP BY source_topic, source_queue_id"""
_QUEUE = (
    "(source_topic = {topic} AND coalesce(source_broker_name, broker_name) = {broker_name} "
    "AND source_queue_id = {queue_id} AND queue_offset >= {at} AND source_queue_offset >= {at} "
    "AND source_queue_offset < {end})"
)


def newest_of_its_own(
    checkpoint: StreamCheckpoint, planned: int, ledger: LedgerLocation, query_id: str, spark: SparkSession
) -> int:
    """The newest batch of the checkpoint's query in the ledger.

    Args:
        checkpoint: the checkpoint.
        planned: the newest batch that was planned in it before the query was started: a batch that the ledger
            has and that is planned since may have another range.
        ledger: the ledger.
        query_id: the checkpoint's query.
        spark: the session, for a ledger in a catalog.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the checkpoint did not know of that batch.
    """
    newest = newest_batch(ledger, DELIVERIES, query_id=query_id, spark=spark)
    if newest > planned:
        raise _older(checkpoint, f"batch {planned}, the ledger has {newest}")
    return newest


def refuse_overtaken(
    checkpoint: StreamCheckpoint,
    ledger: LedgerLocation,
    group: str,
    query_id: str,
    reached: Mapping[MessageQueue, int],
    spark: SparkSession,
    names: LedgerNames = NO_OTHER_NAMES,
) -> None:
    """Refuses a checkpoint behind which the ledger has rows of another one.

    Retry topics are not looked at: their rows are known by their original positions.

    Args:
        checkpoint: the checkpoint.
        ledger: the ledger.
        group: the group.
        query_id: the checkpoint's query.
        reached: by queue, up to where the messages were handled from this checkpoint.
        spark: the session, for a ledger in a catalog.
        names: what the messages of the queues are called in the ledger.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, there are some.
    """
    asked = [
        part
        for queue, at in sorted(reached.items())
        if not is_retry_topic(queue.topic)
        for part in names.parts(queue, at, NO_END)
    ]
    for begin in range(0, len(asked), MOST_SPANS):
        queues = " OR ".join(
            _QUEUE.format(
                topic=quoted(part.queue.topic),
                broker_name=quoted(part.queue.broker_name),
                queue_id=part.queue.queue_id,
                at=part.start,
                end=part.end,
            )
            for part in asked[begin : begin + MOST_SPANS]
        )
        found = select(ledger, _BEHIND.format(group=group, query_id=query_id, queues=queues), spark)
        for topic, queue_id, offset in found:
            raise _older(
                checkpoint,
                f"topic {topic}, queue {queue_id}: the group has handled offset {offset} from another one",
            )


def _older(checkpoint: StreamCheckpoint, how: str) -> InvalidRequest:
    error = from_code(
        "ARGUMENT_ILLEGAL",
        f"the checkpoint {checkpoint.directory} is older than the ledger ({how}): delete it, the group then "
        "goes on where the ledger ends",
    )
    assert isinstance(error, InvalidRequest), "that is its class"
    return error
