"""What was there when a run began that ends by itself, and whether the run has handled it.

Owns the ends of the queues as they were before the group's stream started, and who of several brokers did
not say.

Invariants: a run is never called whole because a broker was silent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError
from structured_streaming.offsets import MessageQueue
from structured_streaming.subscription import Subscription


class AvailableMessages:
    """The messages that a run has to handle."""

    def __init__(self, brokers: GroupBrokers, subscription: Subscription) -> None:
        """Knows of none before the first look.

        Args:
            brokers: the brokers.
            subscription: the topics the group's query reads.
        """
        self._brokers = brokers
        self._subscription = subscription
        self._ends: dict[MessageQueue, tuple[int, int]] = {}
        self._silent: set[str] = set()

    def look(self) -> None:
        """Asks every broker where its queues end now; one of several may be away.

        Raises:
            LakeMQError: the only broker does not answer.
        """
        brokers = self._brokers
        self._ends, self._silent = {}, set(brokers.never_answered())
        for name in brokers.each():
            try:
                for queue, bounds in brokers.held_at(name, self._subscription).items():
                    self._ends[queue] = (bounds.min_offset, bounds.confirmed_offset)
            except LakeMQError as error:
                if not brokers.several or not may_pass(error):
                    raise
                self._silent.add(name)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        """Where each queue ended, of the brokers that answered."""
        return {queue: end for queue, (_, end) in self._ends.items()}

    def left_out(
        self, reached: Mapping[MessageQueue, int], paused: Collection[MessageQueue] = ()
    ) -> list[str]:
        """The brokers of which not all was handled, or of which it is not known.

        Args:
            reached: the offset the group job has reached in each queue.
            paused: queues that the job itself reads no further.
        """
        behind = {queue for queue, (least, end) in self._ends.items() if reached.get(queue, least) < end}
        return sorted(self._silent | {queue.broker_name for queue in behind - {*paused}})
