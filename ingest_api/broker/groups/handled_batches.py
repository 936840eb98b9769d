"""What the jobs of groups say of their batches, for monitoring.

Owns the counts by group, since this broker started.

Invariants: a counter only grows; only the driver that holds a group is counted, and a batch that is told
twice counts once; a group that is gone is forgotten at the next page.

Threads: counted on the event loop; a reading thread copies what it shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest_api.broker.groups.leases import Leases
from ingest_api.broker.metrics import Histogram
from store_native import Store
from store_native.errors import InvalidRequest

BATCH_BOUNDS_S = (1, 2, 5, 10, 30, 60, 300, 900)


@dataclass(slots=True)
class GroupCounts:
    """What one group's jobs handled.

    Attributes:
        messages: Attempts by verdict.
        seconds: How long batches took.
        newest: The batch that was told last.
        at: When, seconds since the epoch.
    """

    messages: dict[str, int] = field(default_factory=dict)
    seconds: Histogram = field(default_factory=lambda: Histogram(BATCH_BOUNDS_S))
    newest: str = ""
    at: float = 0.0


class HandledBatches:
    """Counts the batches of groups.

    Args:
        store: Knows which groups there are.
        leases: Know who drives a group.
        clock: Seconds since the epoch.
    """

    def __init__(self, store: Store, leases: Leases, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._counts: dict[str, GroupCounts] = {}

    def add(
        self,
        group: str,
        batch: str,
        messages: Mapping[str, int],
        seconds: float,
        lease_epoch: int | None,
    ) -> None:
        """Counts a batch, unless it is the one that was told last.

        Args:
            group: The group.
            batch: The batch's name; no two of a group have the same.
            messages: Attempts by verdict.
            seconds: How long the batch took.
            lease_epoch: The epoch of the caller's lease; None where nobody holds the group.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST; LEASE_CONFLICT.
        """
        if self._store.group_json(group) is None:
            raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
        self._leases.check(group, lease_epoch)
        counts = self._counts.setdefault(group, GroupCounts())
        if counts.newest == batch:
            return
        for verdict, number in messages.items():
            counts.messages[verdict] = counts.messages.get(verdict, 0) + number
        counts.seconds.observe(seconds)
        counts.newest, counts.at = batch, self._clock()

    def by_group(self) -> dict[str, GroupCounts]:
        """Returns the counts of the groups that exist, and forgets the others'."""
        for group in list(self._counts):
            if self._store.group_json(group) is None:
                self._counts.pop(group, None)
        return dict(self._counts)
