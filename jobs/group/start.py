"""Where a group without a checkpoint begins.

Owns the order of authority: the ledger (the truth about what was handled), then the broker's offsets of the
group (another ledger, a move from RocketMQ), then what the user asked for.

Invariants: a rebuilt checkpoint neither skips nor repeats a message the ledger knows. The answer is found
once per checkpoint and kept in its start file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from delta_tables.consumer_offsets import RETENTION
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from jobs.group.given_again import broker_of
from jobs.group.truncated_log import TruncatedLog
from jobs.runtime.group_brokers import GroupBrokers, awaited
from jobs.settings import ConsumeSettings, From
from lakemq.client.errors import may_pass
from lakemq.client.results import QueueBounds
from store_native.errors import LakeMQError, Unavailable, from_code
from store_native.names import is_retry_topic
from structured_streaming.offsets import Bounds, EpochOffset, MessageQueue
from structured_streaming.source.data_loss import Loss, past_common

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

StartingOffsets = dict[str, dict[str, int]]


def starting_offsets(
    settings: ConsumeSettings, spark: SparkSession, brokers: GroupBrokers, truncated: TruncatedLog
) -> StartingOffsets:
    """Decides the first offset of every queue of the subscription: topic -> queue -> offset.

    A queue of a broker that is not there now, but in the ledger, is named too: it may come back.

    Args:
        settings: The group's settings.
        spark: The session, for a ledger in a catalog.
        brokers: Those it reads.
        truncated: What was given again of its queues; it may go on behind more.

    Raises:
        LakeMQError: OFFSET_ILLEGAL, positions of the ledger are those of other messages now.
        Unavailable: A broker does not answer.
    """
    handled = truncated.names.reached(handled_offsets(settings.ledger, spark, settings.group))
    ids = _topic_ids(settings.ledger, spark, settings.group)
    there = brokers.all_for_a_start()
    try:
        reported = {} if settings.mode == "broadcast" else brokers.committed_offsets(settings.group)
        queues = brokers.held(settings.subscription)
        again = _made_again(ids, queues, brokers)
    except LakeMQError as error:
        if not may_pass(error):
            raise
        raise awaited(error) from error
    for queue in again:
        if not is_retry_topic(queue.topic):
            raise from_code(
                "OFFSET_ILLEGAL",
                f"topic {queue.topic} of broker {queue.broker_name} was deleted and created again since "
                f"group {settings.group} read it: its positions are in the ledger already, as those of other "
                "messages. Use another group or ledger for it",
            )
        handled.pop(queue, None)  # of the retry topic rows are keyed by original positions
    epochs = _epochs(settings.ledger, spark, settings.group)
    for queue, epoch in truncated.names.epochs().items():  # a batch that is in the ledger may not be reported
        epochs[queue] = max(epoch, epochs.get(queue, epoch))
    handled |= _common_ends(handled, epochs, queues, truncated)
    start = _of_those_there(settings, brokers, handled, reported, queues)
    for queue, at in handled.items() if brokers.several else ():
        if queue.topic in start and queue.broker_name not in there:
            start[queue.topic][brokers.key(queue)] = at
    return start


def _common_ends(
    handled: Mapping[MessageQueue, int],
    epochs: Mapping[MessageQueue, int],
    queues: Mapping[str, Mapping[MessageQueue, QueueBounds]],
    truncated: TruncatedLog,
) -> dict[MessageQueue, int]:
    """Where the group goes on with queues whose offsets a promoted slave gives a second time.

    Raises:
        LakeMQError: OFFSET_ILLEGAL, it does not go on.
        Unavailable: Who answers has a log of an earlier epoch: a slave, while the master is away.
    """
    found: dict[MessageQueue, int] = {}
    losses: list[Loss] = []
    for queue, held in ((queue, held) for part in queues.values() for queue, held in part.items()):
        at, epoch = handled.get(queue), epochs.get(queue)
        if at is None or epoch is None or not held.epochs:
            continue
        now = held.epochs[-1].epoch
        if now < epoch:
            what = f"broker {queue.broker_name}: its master is away, and who answers has a log of epoch"
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{what} {now}, not of {epoch}")
        bounds = Bounds(held.min_offset, held.max_offset, tuple(EpochOffset(*it) for it in held.epochs))
        past = past_common(queue, at, epoch, bounds)
        if past is not None:
            found[queue] = past.start
            losses.append(past)
    truncated.go_on(losses)
    return found


def _epochs(ledger: LedgerLocation, spark: SparkSession, group: str) -> dict[MessageQueue, int]:
    """The newest epoch of each queue's broker that the group's reports say, by whatever name of it."""
    rows = select(
        ledger,
        "SELECT topic, broker_name, queue_id, max(epoch) AS epoch FROM consumer_offsets "
        f"WHERE consumer_group = '{group}' AND epoch IS NOT NULL GROUP BY topic, broker_name, queue_id",
        spark,
    )
    found: dict[MessageQueue, int] = {}
    for topic, broker_name, queue_id, epoch in rows:
        queue = MessageQueue(topic, broker_of(broker_name), queue_id)
        found[queue] = max(epoch, found.get(queue, epoch))
    return found


def _of_those_there(
    settings: ConsumeSettings,
    brokers: GroupBrokers,
    handled: Mapping[MessageQueue, int],
    reported: Mapping[MessageQueue, int],
    queues: Mapping[str, Mapping[MessageQueue, QueueBounds]],
) -> StartingOffsets:
    for topic in queues:
        if is_retry_topic(topic):
            continue
        if not (handled.keys() | reported.keys()) & queues[topic].keys():
            what = beginning(settings, list(queues[topic].values()))
            _log.info("group %s is new to %s: %s", settings.group, topic, what)
    return {
        topic: {
            brokers.key(queue): choose(
                bounds,
                handled.get(queue),
                reported.get(queue),
                # What waits on the retry topic belongs to the group since before it had a checkpoint.
                "earliest" if is_retry_topic(topic) else settings.start,
                retry=is_retry_topic(topic),
            )
            for queue, bounds in held.items()
        }
        for topic, held in queues.items()
    }


def beginning(settings: ConsumeSettings, queues: Sequence[QueueBounds]) -> str:
    """Says where a group begins on a topic that it never read."""
    there = sum(queue.confirmed_offset - queue.min_offset for queue in queues)
    if settings.start == "earliest":
        return f"it begins at the earliest message, {there} are there"
    return f"it begins at the end; --from earliest reads what is there ({there} messages)"


def choose(
    queue: QueueBounds, handled: int | None, reported: int | None, start: From, *, retry: bool = False
) -> int:
    """Picks one queue's first offset.

    An offset of the ledger is taken as it is, even below the queue's minimum: the source then says
    what was lost. The broker's is kept within what the queue holds, but for a slave's word, which may be
    behind. A retry topic (`retry`) that ends
    before the ledger's offset was made again and is read from its beginning: its rows are keyed by
    original positions, so nothing is in the ledger twice.
    """
    if handled is not None and retry and handled > queue.max_offset and not queue.from_slave:
        return queue.min_offset
    if handled is not None:
        return handled
    if reported is not None:
        end = reported if queue.from_slave else queue.confirmed_offset
        return max(queue.min_offset, min(reported, end))
    return queue.min_offset if start == "earliest" else queue.confirmed_offset


def _topic_ids(ledger: LedgerLocation, spark: SparkSession, group: str) -> dict[tuple[str, str], set[str]]:
    """The ids by which the group has known each topic of each broker, as far as its reports say them."""
    found: dict[tuple[str, str], set[str]] = {}
    rows = select(
        ledger,
        "SELECT DISTINCT topic, broker_name, topic_id FROM consumer_offsets "
        f"WHERE consumer_group = '{group}' AND topic_id IS NOT NULL",
        spark,
    )
    for topic, broker_name, topic_id in rows:
        found.setdefault((topic, broker_of(broker_name)), set()).add(topic_id)
    return found


def _made_again(
    ids: Mapping[tuple[str, str], set[str]],
    queues: Mapping[str, Mapping[MessageQueue, QueueBounds]],
    brokers: GroupBrokers,
) -> list[MessageQueue]:
    """The queues of topics that were deleted and created again."""
    there = sorted({queue[:2] for held in queues.values() for queue in held})
    now = {(topic, name): brokers.topic_id(name, topic) for topic, name in there if (topic, name) in ids}
    return [
        queue
        for held in queues.values()
        for queue in held
        if now.get(queue[:2]) and now[queue[:2]] not in ids[queue[:2]]
    ]


def handled_offsets(ledger: LedgerLocation, spark: SparkSession, group: str) -> dict[MessageQueue, int]:
    """The offset after the last one the ledger has an outcome for, per queue read, by the ledger's names.

    `deliveries` is exact up to what a tag filter leaves out; `consumer_offsets` knows of that, but may
    be one batch late. The greater of the two is right.
    """
    delivered = select(
        ledger,
        # Rows of releases that knew one broker do not name the one they were read from: it is the message's.
        "SELECT source_topic, coalesce(source_broker_name, broker_name) AS source_broker, source_queue_id, "
        f"max(source_queue_offset) + 1 AS next_offset FROM deliveries WHERE consumer_group = '{group}' "
        "GROUP BY source_topic, coalesce(source_broker_name, broker_name), source_queue_id",
        spark,
    )
    reported = select(
        ledger,
        "SELECT topic, broker_name, queue_id, max(next_offset) AS next_offset FROM consumer_offsets "
        f"WHERE consumer_group = '{group}' AND query_id <> '{RETENTION}' "
        "GROUP BY topic, broker_name, queue_id",
        spark,
    )
    handled: dict[MessageQueue, int] = {}
    for topic, broker_name, queue_id, offset in (*delivered, *reported):
        queue = MessageQueue(topic, broker_name, queue_id)
        handled[queue] = max(offset, handled.get(queue, 0))
    return handled
