"""Tells the brokers how far a group is.

Owns the report of each batch's end, after it is in the ledger.

Invariants: a report that does not get through costs nothing but freshness, and of several brokers none waits
again and again for one that hangs; one that is refused because the group is another job's ends the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError
from structured_streaming.offsets import MessageQueue

_log = logging.getLogger(__name__)

SILENT_S = 30.0
"""How long one of several brokers that hung at a report is sent none."""
HUNG_S = 3.0


class OffsetReport:
    """Reports one group's offsets.

    Args:
        group: the group.
        brokers: those it reads.
        lease: its lease, whose epoch goes with each report.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        group: str,
        brokers: GroupBrokers,
        lease: GroupLease | GroupLeases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._brokers = brokers
        self._lease = lease
        self._clock = clock
        self._told: dict[str, dict[tuple[str, int], int]] = {}
        self._silent_until: dict[str, float] = {}

    def commit(self, end: Mapping[MessageQueue, int]) -> None:
        """Reports to each broker how far its queues are; where they did not move it knows.

        Raises:
            InvalidRequest: LEASE_CONFLICT, the group is another job's.
        """
        for name in sorted({queue.broker_name for queue in end}):
            own = {(q.topic, q.queue_id): at for q, at in end.items() if q.broker_name == name}
            if not self._brokers.several or self._is_due(name, own):
                self._tell(name, own)

    def _is_due(self, name: str, own: Mapping[tuple[str, int], int]) -> bool:
        """Whether one of several brokers is told; a lease that it did not give yet it gives in a moment."""
        silent = self._silent_until.get(name, 0.0) > self._clock()
        return not silent and self._told.get(name) != own and self._lease.epoch_at(name) is not None

    def _tell(self, name: str, own: dict[tuple[str, int], int]) -> None:
        began = self._clock()
        try:
            self._commit_at(name, own)
        except InvalidRequest as refused:
            if refused.code == "TOPIC_NOT_EXIST":
                _log.warning("the offsets of what is left are reported without it: %s", refused)
                self._tell_what_is_left(name, own)
                return
            if not isinstance(self._lease, GroupLeases) or refused.code != "LEASE_CONFLICT":
                raise
            self._lease.confirm()  # says whether the group is lost, or at this broker for a moment only
            _log.warning("%s did not take the offsets, a later batch reports again: %s", name, refused)
        except LakeMQError as error:
            _log.warning("the broker did not take the offsets, a later batch reports again: %s", error)
            if self._clock() - began >= HUNG_S:
                self._silent_until[name] = self._clock() + SILENT_S
        else:
            self._told[name] = own

    def _tell_what_is_left(self, name: str, own: Mapping[tuple[str, int], int]) -> None:
        """Reports again, without the topics that are gone: the broker takes all offsets or none."""
        try:
            topics = {topic for topic, _ in own}
            gone = {topic for topic in topics if not self._brokers.has_topic(name, topic)}
        except LakeMQError as error:
            _log.warning("the broker did not take the offsets, a later batch reports again: %s", error)
            return
        left = {queue: at for queue, at in own.items() if queue[0] not in gone}
        if gone and left:
            self._tell(name, left)

    def _commit_at(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        broker, epoch = self._brokers.broker(name), self._lease.epoch_at(name)
        try:
            broker.commit_offsets(self._group, offsets, lease_epoch=epoch)
        except InvalidRequest as refused:
            # A broker that restarted has forgotten which epoch is the newest until it is asked.
            if not refused.context.get("renew"):
                raise  # the group is somebody else's now
            self._lease.confirm()
            broker.commit_offsets(self._group, offsets, lease_epoch=epoch)
