"""Messages a query has not read and can no longer read.

Owns the comparison of a checkpoint's positions with what the store holds now, and the words for each kind
of loss.

Invariants: no loss is silent, nor is it when a broker gives queue offsets a second time, which loses nothing
to a query that has read them: a position past the common point is a "truncated log"; failOnDataLoss decides
between the error and going on with a count. Pure but for the log line of a loss.

Processes: the driver compares positions; executors say what their reads found gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from store_native.errors import LakeMQError, from_code
from store_native.names import is_retry_topic
from structured_streaming.offsets import (
    Bounds,
    MessageQueue,
    Offsets,
    TopicMetadata,
    planned_from,
    same_topic,
    start_in,
)

log = logging.getLogger("lakemq.spark")

_SKIP = "Set failOnDataLoss=false to skip them and go on"
_GO_ON = f"{_SKIP} (lakemq consume: --on-data-loss record; lakemq archive: --on-data-loss skip)"
_GROUP_GOES_ON = (
    f"{_SKIP} (lakemq consume: --on-data-loss record); lakemq archive ends here whatever --on-data-loss "
    "says, for its table has the old positions: use another ledger for what is there now"
)
_GROUP_ENDS = (
    "A Spark query goes on with failOnDataLoss=false; lakemq consume and lakemq archive end here whatever "
    "--on-data-loss says, for their ledger has the old positions: use another group or ledger for what is "
    "there now"
)
_REUSED = (
    "Its table has, or may have, these offsets as other messages' (failOnReusedOffsets; lakemq archive): "
    "leave a topic out that is gone, and use another table or ledger for what is there now"
)

RETRY_TOPIC_LOST = "retry topic gone or made again"
"""Why a group goes on where its retry topic is another one, or none: its rows are of original positions."""
TRUNCATED_LOG = "truncated log"
"""The reason where a broker gave queue offsets a second time."""


@dataclass(frozen=True)
class Loss:
    """One range that is gone.

    Attributes:
        what: The sentence that names topic, queue and reason.
        messages: How many messages are surely lost; None when nobody can know.
        queue, start, end: The range [start, end) that cannot be read; None, 0, 0 when it is not known.
        reason: The kind of loss in a few words.
        epochs: Of a truncated log: the one in which the offsets were other messages, and the one that gave
            them again; None where it is not known from which offset on.
    """

    what: str
    messages: int | None = None
    queue: MessageQueue | None = None
    start: int = 0
    end: int = 0
    reason: str = ""
    epochs: tuple[int, int] | None = None

    @property
    def lets_a_group_go_on(self) -> bool:
        """Whether a group may go on behind it: its ledger's keys stay those of one message each."""
        return self.is_range or self.epochs is not None or self.reason == RETRY_TOPIC_LOST

    @property
    def is_range(self) -> bool:
        """Whether the positions behind it mean what they did: a group may pass over it."""
        return self.queue is not None and self.reason != TRUNCATED_LOG


def expired(queue: MessageQueue, start: int, min_offset: int) -> Loss:
    """The store's retention took messages before they were read."""
    reason, count = "expired before they were read", min_offset - start
    what = f"{queue}: offsets [{start}, {min_offset}) {reason}, {count} messages"
    return Loss(what, count, queue, start, min_offset, reason)


def damaged(queue: MessageQueue, start: int, end: int) -> Loss:
    """The store skipped records whose bytes fail their checksum."""
    what = f"{queue}: offsets [{start}, {end}) are damaged in the store, {end - start} messages"
    return Loss(what, end - start, queue, start, end, "damaged in the store")


def cut_off(queue: MessageQueue, start: int, max_offset: int) -> Loss:
    """The queue ends before the position: its log was truncated or put back."""
    return Loss(f"{queue}: the query is at {start} but the queue now ends at {max_offset} (log truncated?)")


def truncated(
    queue: MessageQueue, start: int, end: int, epoch: int, now: int, given_in: int | None = None
) -> Loss:
    """A slave that was promoted lacked messages, and gives their offsets a second time.

    Args:
        queue: The queue.
        start: The first offset that its master alone had given.
        end: Where the query was.
        epoch: In which epoch it was there.
        now: The epoch of the log as it is.
        given_in: The first epoch that gave the offsets again; None: not known.
    """
    what = (
        f"{queue}: {TRUNCATED_LOG}: offsets [{start}, {end}) were other messages in epoch {epoch}, which the "
        f"master of epoch {now} lacks; its own go on at offset {start}"
    )
    epochs = None if given_in is None else (epoch, given_in)
    return Loss(what, None, queue, start, end, TRUNCATED_LOG, epochs)


def past_common(queue: MessageQueue, position: int, epoch: int, held: Bounds, begin: int = 0) -> Loss | None:
    """What of [begin, position), which a query had come to in an epoch, was, or may have been, given again.

    Where retention has taken the common point, nobody knows whether the position lies behind it.
    """
    past = held.past(position, epoch)
    if past is None:
        return None
    now = held.epochs[-1].epoch
    if past.at_or_before:
        return truncated_somewhere(queue, past.first_offset, position, epoch, now, held.min_offset)
    return truncated(queue, max(begin, past.first_offset), position, epoch, now, past.epoch)


def truncated_somewhere(
    queue: MessageQueue, bound: int, end: int, epoch: int, now: int, goes_on: int
) -> Loss:
    """The same as `truncated` where the first offset of the later epoch has expired.

    Args:
        queue, end, epoch, now: As of `truncated`.
        bound: The later epoch began there or before.
        goes_on: The queue's first message now.
    """
    what = (
        f"{queue}: {TRUNCATED_LOG}: the query had come to {end} in epoch {epoch}; the log as it is, of epoch "
        f"{now}, is another one from offset {bound} on, or from before: retention has taken where. It goes "
        f"on at offset {goes_on}"
    )
    return Loss(what, None, queue, min(bound, end), end, TRUNCATED_LOG)


@dataclass(frozen=True)
class Reconciled:
    """Positions that can be read from, and what was lost before them.

    Attributes:
        starts: A readable position for each subscribed queue.
        losses: What is gone; empty when all is well.
        gone: Subscribed queues of the checkpoint that no longer exist.
    """

    starts: dict[MessageQueue, int]
    losses: list[Loss]
    gone: set[MessageQueue]


def reconcile(
    start: Offsets,
    metadata: TopicMetadata,
    subscribed: Callable[[MessageQueue], bool],
) -> Reconciled:
    """Compares positions with the store.

    Args:
        start: The positions of the checkpoint.
        metadata: What the store holds now of the subscribed queues.
        subscribed: Whether a queue belongs to the query; the others are left alone.
    """
    losses, restarted = _restarted(start, metadata)
    starts: dict[MessageQueue, int] = {}
    for queue, held in metadata.bounds.items():
        min_offset, max_offset = held.min_offset, held.max_offset
        position = 0 if queue.topic in restarted else start.position(queue)
        again = past_common(queue, position, start.epoch, held)
        if again is not None:
            losses.append(again)
            common = held.past(position, start.epoch)
            # What has expired is said with it where it is not known from where on.
            position = common.first_offset if common and not common.at_or_before else min_offset
        if position > max_offset:
            losses.append(cut_off(queue, position, max_offset))
            position = max_offset
        elif position < min_offset:
            # A re-created topic is reported once already; its expired head is part of that.
            if queue.topic not in restarted:
                losses.append(expired(queue, position, min_offset))
            position = min_offset
        starts[queue] = position
    gone = {queue for queue in start.queues if queue not in metadata.bounds and subscribed(queue)}
    gone_topics = {queue.topic for queue in gone if queue.topic not in metadata.topic_ids}
    for topic in sorted(gone_topics):
        what = f"topic {topic} no longer exists; what it still held is not known"
        losses.append(Loss(what, reason=_reason_of(topic)))
    for queue in sorted(gone):
        if queue.topic not in gone_topics and queue.topic not in restarted:
            what = f"{queue}: the queue no longer exists; what it still held is not known"
            losses.append(Loss(what, reason=_reason_of(queue.topic)))
    return Reconciled(starts, losses, gone)


def _reason_of(topic: str) -> str:
    return RETRY_TOPIC_LOST if is_retry_topic(topic) else ""


def _restarted(start: Offsets, metadata: TopicMetadata) -> tuple[list[Loss], set[str]]:
    """Topics whose positions mean nothing any more: re-created, or the whole store put back.

    A higher epoch is a failover: positions stay good up to the common point.
    """
    if metadata.epoch < start.epoch:
        what = (
            f"the store is at epoch {metadata.epoch} but the checkpoint at epoch {start.epoch}: the store "
            "was replaced by an older one, its positions no longer fit"
        )
        return [Loss(what)], set(metadata.topic_ids)
    losses: list[Loss] = []
    restarted: set[str] = set()
    for topic, topic_id in metadata.topic_ids.items():
        before = start.topic_ids.get(topic)
        if not same_topic(before, topic_id):
            what = (
                f"topic {topic} was deleted and created again (id {before} became {topic_id}): "
                "the positions of the checkpoint belong to the old topic"
            )
            losses.append(Loss(what, reason=_reason_of(topic)))
            restarted.add(topic)
    return losses, restarted


def say_unknown_epoch(position: Offsets, metadata: TopicMetadata) -> None:
    """Logs which positions, of a checkpoint that says no epoch, may lie past the common point of two epochs.

    Whether they do nobody can know: they are gone on with.
    """
    said = []
    for queue, held in sorted(metadata.bounds.items()):
        common, at = held.common_end(position.epoch), position.position(queue)
        if common is not None and at > common:
            said.append(f"{queue} is at {at}, and offsets from {common} on are of later epochs")
    if said:
        more = f"; and {len(said) - 5} more" if len(said) > 5 else ""
        log.warning(
            "the checkpoint is of a release that read a store by its path and noted no epoch: whether a "
            "promotion has given its offsets a second time is not known, going on: %s%s",
            *("; ".join(said[:5]), more),
        )


def truncated_before(start: Offsets, end: Offsets, metadata: TopicMetadata) -> list[Loss]:
    """Says what before a planned batch was given a second time; arguments as of `truncated_plan`."""
    before = planned_from(start, end)
    held = {queue: bounds for queue, bounds in metadata.bounds.items() if queue in before.queues}
    found = reconcile(before, replace(metadata, bounds=held), lambda queue: False).losses
    return [loss for loss in found if loss.reason == TRUNCATED_LOG]


def truncated_plan(start: Offsets, end: Offsets, metadata: TopicMetadata) -> list[Loss]:
    """Says what of a planned batch was given a second time since it was planned.

    Args:
        start, end: The batch.
        metadata: What the store holds now of the batch's queues.
    """
    losses = []
    for queue, reached in end.queues.items():
        held = metadata.bounds.get(queue)
        if held is None or not same_topic(
            end.topic_ids.get(queue.topic), metadata.topic_ids.get(queue.topic)
        ):
            continue
        begin = start_in(start, end, queue)
        again = past_common(queue, reached, end.epoch, held, begin) if begin < reached else None
        if again is not None:
            losses.append(again)
    return losses


def report(losses: Iterable[Loss], fail: bool, fail_on_reused: bool = False) -> int:
    """Raises for the losses, or logs them.

    Args:
        losses: What is gone.
        fail: The option failOnDataLoss.
        fail_on_reused: The option failOnReusedOffsets: raises for those that a query cannot pass over with
            its positions as good as they were, whatever `fail` says.

    Returns:
        How many messages are surely lost.

    Raises:
        LakeMQError: OFFSET_ILLEGAL, with all losses in words.
    """
    found = list(losses)
    if not found:
        return 0
    lost = sum(loss.messages or 0 for loss in found)
    if fail:
        raise _error(found, lost, _advice(found))
    reused = [loss for loss in found if not loss.is_range]
    if fail_on_reused and reused:
        raise _error(reused, sum(loss.messages or 0 for loss in reused), _REUSED)
    for loss in found:
        log.warning("data loss, going on because failOnDataLoss=false: %s", loss.what)
    return lost


def _advice(losses: list[Loss]) -> str:
    if all(loss.is_range for loss in losses):
        return _GO_ON
    return _GROUP_GOES_ON if all(loss.lets_a_group_go_on for loss in losses) else _GROUP_ENDS


def _error(losses: list[Loss], lost: int, advice: str) -> LakeMQError:
    shown = "; ".join(loss.what for loss in losses[:5])
    more = f"; and {len(losses) - 5} more" if len(losses) > 5 else ""
    return from_code("OFFSET_ILLEGAL", f"messages are lost to this query: {shown}{more}. {advice}", lost=lost)
