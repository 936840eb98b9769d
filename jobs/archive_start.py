"""Where an archive begins, and what it does not begin from.

Owns that decision, and its comparison with what the table has.

Invariants: a message has one row: a start whose positions lie before rows that the table has is refused, and
one whose positions mean other messages than those rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from delta_tables.ledger.location import LedgerLocation
from delta_tables.messages import MESSAGES
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.runtime.group_brokers import GroupBrokers, awaited
from lakemq.client.errors import may_pass
from store_native.errors import InvalidRequest, LakeMQError, from_code
from structured_streaming.offsets import MessageQueue


def behind(queue: MessageQueue, at: int) -> Column:
    """Which rows are a queue's from an offset on; of every broker where the queue names none."""
    place = (F.col("topic") == queue.topic) & (F.col("queue_id") == queue.queue_id)
    if queue.broker_name:
        place &= F.col("broker_name") == queue.broker_name
    return place & (F.col("queue_offset") >= at)


def after_the_last_row(
    spark: SparkSession, ledger: LedgerLocation, topics: Iterable[str], brokers: GroupBrokers
) -> dict[str, dict[str, int]]:
    """Returns where an archive without a checkpoint begins: behind the table's rows, as startingOffsets.

    Raises:
        InvalidRequest: OFFSET_ILLEGAL, a queue has other messages than the table's rows.
        Unavailable: A broker does not answer.
    """
    landed = {
        MessageQueue(*row[:3]): (row[3], row[4])
        for row in ledger.read(spark, MESSAGES)
        .groupBy("topic", "broker_name", "queue_id")
        .agg(F.max("queue_offset"), F.max_by("message_id", "queue_offset"))
        .collect()
    }
    there = brokers.all_for_a_start()
    start: dict[str, dict[str, int]] = {}
    for topic in topics:
        start[topic] = {}
        try:
            for queue, bounds in brokers.queues(topic).items():
                begin = bounds.min_offset
                if queue in landed:
                    last, message_id = landed[queue]
                    begin = last + 1
                    if bounds.min_offset <= last or bounds.max_offset <= last:
                        _check_same(brokers, queue, last, message_id)
                start[topic][brokers.key(queue)] = begin
        except LakeMQError as error:
            if not may_pass(error):
                raise
            raise awaited(error) from error
    # Of a broker that nobody knows of now the positions are kept for when it comes back.
    for queue, (last, _) in landed.items() if brokers.several else ():
        if queue.topic in start and queue.broker_name not in there:
            start[queue.topic][brokers.key(queue)] = last + 1
    return start


def _check_same(brokers: GroupBrokers, queue: MessageQueue, offset: int, message_id: str) -> None:
    pulled = brokers.broker(queue.broker_name).pull(queue.topic, queue.queue_id, offset, max=1)
    found = next((m.message_id for m in pulled.messages if m.queue_offset == offset), None)
    if found != message_id:
        there = "no message" if found is None else f"message {found}"
        raise from_code(
            "OFFSET_ILLEGAL",
            f"{queue}: the table has message {message_id} at offset {offset}, where there is {there} now: "
            "the topic was made again, or its log is another one. Use another ledger for it",
        )


def refuse_rows_behind(
    spark: SparkSession,
    ledger: LedgerLocation,
    topics: Iterable[str],
    checkpoint: StreamCheckpoint,
    brokers: GroupBrokers,
) -> None:
    """Refuses a checkpoint that does not know of rows of the table: it would land them again.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, naming such a row's queue.
    """
    end = checkpoint.planned_end()
    if end is None:
        return
    wanted = set(topics)
    starts: Mapping[MessageQueue, int] = {
        **dict.fromkeys(_there(brokers, wanted), 0),
        **{queue: at for queue, at in end.queues.items() if queue.topic in wanted},
    }
    if not starts:
        return
    conditions = [behind(queue, at) for queue, at in starts.items()]
    row = ledger.read(spark, MESSAGES).where(reduce(or_, conditions)).head()
    if row is not None:
        queue = MessageQueue(row["topic"], row["broker_name"], row["queue_id"])
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"the table messages has offset {row['queue_offset']} of {queue}, and the checkpoint "
            f"{checkpoint.directory} does not know of it: it was put back, or another one was used "
            "meanwhile. Delete it: without it the archive begins behind the table's rows",
        )


def _there(brokers: GroupBrokers, topics: Iterable[str]) -> set[MessageQueue]:
    """The queues that brokers have now; none where one is away: it joins later, behind nothing."""
    found: set[MessageQueue] = set()
    for topic in topics:
        try:
            found |= brokers.queues(topic).keys()
        except InvalidRequest:
            raise
        except LakeMQError:
            continue
    return found
