"""Tells the broker how far a consumer group has come.

Owns the reports of one query.

Invariants: only what Spark has finished is reported, and only by the driver; a report that does not get
through costs nothing but freshness, because the position of truth is the checkpoint, while a report refused
because the lease was lost fails the query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakemq.client import Client
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError
from structured_streaming.offsets import MessageQueue, Offsets

log = logging.getLogger("lakemq.spark")


class GroupProgress:
    """Reports the positions of one group.

    Args:
        client: The broker.
        group: The group.
        subscribed: Whether a queue belongs to the query; positions carried for others are not reported.
    """

    def __init__(self, client: Client, group: str, subscribed: Callable[[MessageQueue], bool]) -> None:
        self._client = client
        self._group = group
        self._subscribed = subscribed
        self._reported: dict[MessageQueue, int] = {}

    def committed_offsets(self) -> dict[tuple[str, int], int]:
        """Returns the group's committed offsets; none when the broker does not know the group."""
        try:
            return self._client.group_offsets(self._group)
        except LakeMQError as error:
            if error.code == "GROUP_NOT_EXIST":
                return {}
            raise

    def report(self, done: Offsets, lease_epoch: int | None) -> None:
        """Reports that everything before ``done`` is finished; tells only what changed.

        Raises:
            LakeMQError: The broker refused, for instance LEASE_CONFLICT. A broker that is away is
                not an error: the next report carries the same.
        """
        changed = {
            queue: offset
            for queue, offset in done.queues.items()
            if self._subscribed(queue) and self._reported.get(queue) != offset
        }
        if not changed:
            return
        rows = {(queue.topic, queue.queue_id): offset for queue, offset in changed.items()}
        try:
            self._client.commit_offsets(self._group, rows, lease_epoch=lease_epoch)
        except LakeMQError as error:
            if not may_pass(error):
                raise
            log.warning(
                "group %s: progress not reported now, will be with the next batch: %s", self._group, error
            )
            return
        self._reported.update(changed)
