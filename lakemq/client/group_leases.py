"""A group's leases at several brokers: one driver per group, though each broker has a lease of its own.

Owns which of them a driver needs.

Invariants: the group is held while one broker's lease is, so a broker that dies does not stop its driver; a
refusal of any broker is final, since another driver has the group there. Two drivers that reach no common
broker may both hold it: then the ledger's fence lets one of them in.

Threads: as in group_lease.py, one for each broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from lakemq.client.errors import may_pass
from lakemq.client.group_lease import GroupLease
from store_native.errors import LakeMQError, Unavailable

_PAUSE_S = 0.5


class GroupLeases:
    """Holds a group at every broker that can be reached; used as a :class:`GroupLease` is.

    Args:
        leases: A lease for each broker, by broker name.
        outage_timeout_s: How long `check` waits when no broker can be reached.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        leases: Mapping[str, GroupLease],
        *,
        outage_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = dict(sorted(leases.items()))
        self._outage_timeout_s = outage_timeout_s
        self._clock = clock
        self._retries_ended = threading.Event()

    @property
    def owner(self) -> str:
        """Who holds the group."""
        return next(iter(self._leases.values())).owner

    @property
    def epoch(self) -> int:
        """The highest fencing epoch of all brokers."""
        return max(lease.epoch for lease in self._leases.values())

    def epoch_at(self, broker_name: str) -> int | None:
        """The fencing epoch at one broker; None where the lease was not taken yet."""
        lease = self._leases.get(broker_name)
        return None if lease is None else lease.epoch or None

    def acquire(self) -> int:
        """Takes the group at all brokers, in the order of their names; one that is away is asked again later.

        Raises:
            LakeMQError: LEASE_CONFLICT when another driver holds it at one of them; what the first said
                when none can be reached.
        """
        away: list[LakeMQError] = []
        for lease in self._leases.values():
            try:
                lease.acquire()
            except LakeMQError as error:
                if not may_pass(error):
                    self.release()
                    raise
                away.append(error)
                lease.acquire_later()
        if len(away) == len(self._leases):
            self.release()
            raise away[0]
        return self.epoch

    def check(self) -> int:
        """Makes sure that the group was not lost; returns the fencing epoch.

        Raises as :meth:`GroupLease.check`.
        """
        valid = [lease.is_valid() for lease in self._leases.values()]  # each says when it was lost
        if not any(valid):
            self.confirm()
        return self.epoch

    def confirm(self) -> None:
        """Asks the brokers whether the group is still ours until one answers; raises as `check`."""
        deadline = self._clock() + self._outage_timeout_s
        while True:
            failure: LakeMQError | None = None
            answered = False
            for lease in self._leases.values():
                lease.is_valid()
                try:
                    lease.renew()
                    answered = True
                except LakeMQError as error:
                    if not may_pass(error):
                        raise
                    failure = error
            if answered:
                return
            assert failure is not None, "there is a lease"
            if self._clock() >= deadline or self._retries_ended.wait(_PAUSE_S):
                raise Unavailable(
                    "SERVICE_NOT_AVAILABLE", f"no lease on the group could be renewed: {failure.detail}"
                ) from failure

    def stop_retrying(self) -> None:
        """No longer waits for brokers that are away: the driver stops."""
        self._retries_ended.set()
        for lease in self._leases.values():
            lease.stop_retrying()

    def release(self) -> None:
        """Stops renewing and gives the group back, as far as the brokers can be reached."""
        self._retries_ended.set()
        for lease in self._leases.values():
            lease.release()
