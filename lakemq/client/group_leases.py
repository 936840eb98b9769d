"""A group's leases at several brokers: one driver per group, though each broker has a lease of its own.

Owns which of them a driver needs, and that a broker that comes later is asked for one too.

Invariants: the group is held while one broker's lease is, so a broker that dies does not stop its driver. A
driver that starts is refused by any broker at which another one has the group. One that runs goes on while
another has the group at a broker for a moment, as one that is refused elsewhere does; of two that each hold
brokers, the one goes on that holds the first of them by name. Two that reach no common broker may both hold
the group: then the ledger's fence lets one of them in.

Threads: as in group_lease.py, one for each broker; any may check.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from lakemq.client.errors import may_pass
from lakemq.client.group_lease import GroupLease
from store_native.errors import LakeMQError, Unavailable

_log = logging.getLogger("lakemq.lease")

_PAUSE_S = 0.5


class GroupLeases:
    """Holds a group at every broker that can be reached; used as a :class:`GroupLease` is.

    Args:
        names: Says which brokers there are now, by name.
        lease_at: Describes the driver's lease at one of them.
        outage_timeout_s: How long `check` waits when no broker can be reached.
        refused_s: How long another driver may have the group at one broker before this one looks which of
            the two goes on.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        lease_at: Callable[[str], GroupLease],
        *,
        outage_timeout_s: float,
        refused_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._lease_at = lease_at
        self._leases = {name: lease_at(name) for name in sorted(names())}
        self._outage_timeout_s = outage_timeout_s
        self._refused_s = refused_s
        self._clock = clock
        self._refused_since: dict[str, float] = {}
        self._looking = threading.Lock()
        self._retries_ended = threading.Event()

    @property
    def owner(self) -> str:
        """Who holds the group."""
        return next(iter(self._leases.values())).owner

    @property
    def epoch(self) -> int:
        """The highest fencing epoch of all brokers."""
        return max(lease.epoch for lease in list(self._leases.values()))

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
        if not self._look():
            self.confirm()
        return self.epoch

    def confirm(self) -> None:
        """Asks the brokers whether the group is still ours until one answers; raises as `check`."""
        deadline = self._clock() + self._outage_timeout_s
        while True:
            failure: LakeMQError | None = None
            for lease in list(self._leases.values()):
                try:
                    lease.renew()
                except LakeMQError as error:
                    failure = error
            if self._look(asked=True):
                return
            if failure is not None and not may_pass(failure):
                raise failure
            if self._clock() >= deadline or self._retries_ended.wait(_PAUSE_S):
                why = "" if failure is None else f": {failure.detail}"
                raise Unavailable(
                    "SERVICE_NOT_AVAILABLE", f"no lease on the group could be renewed{why}"
                ) from failure

    def stop_retrying(self) -> None:
        """No longer waits for brokers that are away: the driver stops."""
        self._retries_ended.set()
        for lease in list(self._leases.values()):
            lease.stop_retrying()

    def release(self) -> None:
        """Stops renewing and gives the group back, as far as the brokers can be reached."""
        self._retries_ended.set()
        with self._looking:
            for lease in self._leases.values():
                lease.release()

    def _look(self, *, asked: bool = False) -> bool:
        """Says, without asking a lease's broker, whether one lease is valid; begins to ask new brokers.

        Args:
            asked: The brokers were just asked: where no lease is valid, a refusal is the answer.

        Raises:
            InvalidRequest: LEASE_CONFLICT, the group was lost.
        """
        with self._looking:
            if self._retries_ended.is_set():
                return any(lease.is_valid() for lease in self._leases.values())
            self._ask_those_that_came()
            refused: dict[str, LakeMQError] = {}
            valid: list[str] = []
            for name, lease in self._leases.items():
                try:
                    if lease.is_valid():
                        valid.append(name)
                        self._refused_since.pop(name, None)
                except LakeMQError as error:
                    refused[name] = error
            if not valid and not asked:
                return False
            for name, why in refused.items():
                if not self._goes_on(name, why, valid):
                    raise why
                self._leases[name].release()
                self._leases[name] = self._lease_at(name)
                self._leases[name].acquire_later()
            return bool(valid)

    def _goes_on(self, refused_at: str, why: LakeMQError, valid: list[str]) -> bool:
        first = refused_at not in self._refused_since
        since = self._refused_since.setdefault(refused_at, self._clock())
        goes_on = bool(valid) and (valid[0] < refused_at or self._clock() - since < self._refused_s)
        if goes_on and first:
            _log.warning("broker %s: %s; this driver has the group at %s and goes on", refused_at, why, valid)
        return goes_on

    def _ask_those_that_came(self) -> None:
        for name in sorted(set(self._names()) - self._leases.keys()):
            self._leases[name] = self._lease_at(name)
            self._leases[name].acquire_later()
        self._leases = dict(sorted(self._leases.items()))
