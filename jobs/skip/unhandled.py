"""A message that a group has not come to.

Owns the questions to the broker, which knows what the ledger has no row of.

Invariants: a position is taken only where its queue holds a message there that the group will be given.
"""

from __future__ import annotations

from jobs.group.given_again import broker_of
from jobs.skip.message_state import MessageState, Place, Reached, refused
from lakemq.client import Client, PullResult
from store_native.names import retry_topic


def unhandled(client: Client, group: str, at: Place, reached: Reached) -> MessageState:
    """Looks for a message of which the ledger has no row.

    Args:
        client: Of the broker, or of several.
        group: The group.
        at: The message's position.
        reached: How far the group has read the queue.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL: the group has passed it or will not be given it, or the queue does
            not hold it; TOPIC_NOT_EXIST, QUEUE_NOT_EXIST.
        Unavailable: The broker does not answer.
    """
    if at.topic == retry_topic(group):
        raise refused(f"{at.topic} has what comes again: name the message's original position")
    if at.queue_offset < reached.offset:
        raise refused(
            f"group {group} has passed it without an attempt: it began behind it, its tags {reached.tags!r} "
            f"leave it out, or it was lost ({at})"
        )
    found = _pulled(client, at)
    if not _is_there(found, at):
        held = "no message"
        if found.max_offset > found.min_offset:
            held = f"offsets {found.min_offset} to {found.max_offset - 1}, and no such message"
        raise refused(f"the queue holds {held} ({at})")
    if not _is_there(_pulled(client, at, reached.tags), at):
        raise refused(f"the tags {reached.tags!r} of group {group} leave it out ({at})")
    return MessageState("NOT_HANDLED", 0, found.messages[0].message_id)


def _pulled(client: Client, at: Place, tags: str = "*") -> PullResult:
    return client.pull(
        *(at.topic, at.queue_id, at.queue_offset),
        max=1,
        max_bytes=1,
        tags=tags,
        broker_name=broker_of(at.broker_name),
    )


def _is_there(found: PullResult, at: Place) -> bool:
    return bool(found.messages) and found.messages[0].queue_offset == at.queue_offset
