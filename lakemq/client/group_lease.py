"""The broker's lease on a group: one driver per group.

Owns taking, renewing, confirming and giving back; who may be waited for and what a refused driver should do
is its policy's.

Invariants: while a live driver holds the group a second one fails and names it; `check` passes only while no
other driver can have taken the group, by the holder's own monotonic clock where its policy asks for that;
and a lease that ran out while the broker was away goes on under its old epoch or not at all: a new epoch
says that somebody else had the group meanwhile, and then the lease is lost for good.

Threads: the driver's, and one that renews; renewals exclude each other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from lakemq.client.client import Client
from lakemq.client.errors import may_pass
from store_native.errors import InvalidRequest, LakeMQError, Unavailable, from_code

_log = logging.getLogger("lakemq.lease")

RENEWALS_PER_TTL = 5
KEPT_FOR_S = 10.0
"""How long a broker that starts again, or is promoted, keeps a lease; it does not know what was agreed."""
_LONGEST_PAUSE_S = 1.0
_CLOCKS_DIFFER_MS = 1_000
"""The broker adds what is left by one clock to the time of another: less than this is no renewal."""


class Holder(Enum):
    """What a refused driver does about the one that holds the group."""

    DEAD = "it has surely ended: its lease is given back for it"
    MAY_RUN_OUT = "its lease is waited out, unless it is renewed meanwhile"
    ALIVE = "the refusal is final"


class LeasePolicy(Protocol):
    """What one kind of driver makes of a group that another one holds."""

    def assess(self, holder: str) -> Holder:
        """Says what to do about the owner of this name; called at each refusal of `acquire`."""
        ...

    def advice(self, holder: str) -> str:
        """Says what the user can do about it; a part of the error's text."""
        ...


class GroupLease:
    """Holds a group for one owner and renews it in the background.

    Args:
        client: The broker.
        group: The group.
        owner: Who holds it; no two drivers have the same name.
        policy: What is made of another holder.
        ttl_ms: How long the broker keeps the lease without a renewal.
        outage_timeout_s: How long `check` waits for a broker that is away once the lease may have run out.
            None: it does not look at the clock, and the epoch alone fences a late report.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        owner: str,
        policy: LeasePolicy,
        ttl_ms: int,
        *,
        outage_timeout_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = owner
        self.epoch = 0
        self._client = client
        self._group = group
        self._policy = policy
        self._ttl_ms = ttl_ms
        self._outage_timeout_s = outage_timeout_s
        self._clock = clock
        self._valid_until = 0.0
        self._seen: tuple[str, int] | None = None
        self._lost: LakeMQError | None = None
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        self._retries_ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{group}", daemon=True)

    def acquire(self) -> int:
        """Takes the group, waiting as the policy says, and starts renewing; returns the fencing epoch.

        Raises:
            InvalidRequest: LEASE_CONFLICT when another driver holds it.
        """
        while True:
            try:
                epoch = self.renew()
                break
            except InvalidRequest as refused:
                pause = self._pause_after(refused)
            self._stop.wait(pause)
        self._thread.start()
        return epoch

    def epoch_at(self, broker_name: str) -> int:
        """The fencing epoch; the lease is one broker's, whatever that is called."""
        return self.epoch

    def acquire_later(self) -> None:
        """Begins to ask for the group, of a broker that was away at :meth:`acquire` or came since.

        Waits as the policy says; a refusal that is final is remembered.
        """
        self._thread.start()

    def is_valid(self) -> bool:
        """Says, without asking, whether the lease surely holds; raises when the group was lost."""
        if self._lost is not None:
            raise self._lost
        return self._clock() < self._valid_until

    def check(self) -> int:
        """Makes sure that the group was not lost; returns the fencing epoch.

        Raises:
            InvalidRequest: LEASE_CONFLICT when another driver holds the group, or held it meanwhile.
            Unavailable: The lease may have run out, and the broker was away for too long.
        """
        if self._lost is not None:
            raise self._lost
        if self._outage_timeout_s is not None and self._clock() >= self._valid_until:
            self.confirm()
        return self.epoch

    def confirm(self) -> None:
        """Asks the broker whether the group is still ours, and waits while it is away; raises as `check`."""
        deadline = self._clock() + (self._outage_timeout_s or 0.0)
        pause = 0.1
        while True:
            if self._lost is not None:
                raise self._lost
            try:
                self.renew()
                return
            except LakeMQError as error:
                if not may_pass(error):
                    raise
                if self._clock() >= deadline or self._retries_ended.is_set():
                    raise Unavailable(
                        "SERVICE_NOT_AVAILABLE",
                        f"the lease on group {self._group} could not be renewed: {error.detail}",
                    ) from error
                self._retries_ended.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def renew(self) -> int:
        """Renews once, now; returns the fencing epoch. A refusal for good is remembered.

        Raises:
            LakeMQError: LEASE_CONFLICT when another driver holds the group, or held it meanwhile; or what
                became of the call.
        """
        with self._renewing:
            asked_at = self._clock()
            try:
                lease = self._client.acquire_lease(self._group, self.owner, self._ttl_ms)
            except InvalidRequest as error:
                if not self.epoch or may_pass(error):
                    raise
                holder = str(error.context.get("owner", "another owner"))
                conflict = error.code == "LEASE_CONFLICT"
                self._lost = self._conflict(f"is being consumed by {holder}", holder) if conflict else error
                raise self._lost from error
            # The store gives an owner its old epoch back unless there was another owner.
            if self.epoch not in (0, lease.epoch):
                self._lost = self._conflict("had another driver while the lease had run out", "")
                raise self._lost
            self.epoch = lease.epoch
            self._valid_until = asked_at + min(self._ttl_ms / 1000, KEPT_FOR_S)
            return lease.epoch

    def stop_retrying(self) -> None:
        """No longer waits for a broker that is away: the driver stops."""
        self._retries_ended.set()

    def release(self) -> None:
        """Stops renewing and gives the group back, as far as the broker can be reached."""
        self._retries_ended.set()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self.epoch:
            return
        try:
            self._client.release_lease(self._group, self.owner)
        except LakeMQError as error:
            _log.warning(
                "the lease on group %s was not given back and runs out by itself: %s", self._group, error
            )

    def _keep(self) -> None:
        failed: LakeMQError | None = None  # said once, and once that it is over
        between = min(self._ttl_ms / 1000 / RENEWALS_PER_TTL, KEPT_FOR_S / 2)
        pause = between if self.epoch else 0.0
        while not self._stop.wait(pause):
            pause = between
            try:
                self.renew()
                if failed is not None:
                    _log.warning("the lease on group %s is held again, after: %s", self._group, failed)
                    failed = None
            except LakeMQError as error:
                if self._lost is not None:
                    return
                if not self.epoch and isinstance(error, InvalidRequest):  # asked for the first time
                    try:
                        pause = self._pause_after(error)
                    except LakeMQError as refused:
                        if not may_pass(refused):
                            self._lost = refused
                            return
                    continue
                if failed is None:
                    what = "the lease on group %s could not be renewed, which is tried every %g s: %s"
                    _log.warning(what, self._group, pause, error)
                failed = error

    def _pause_after(self, refused: InvalidRequest) -> float:
        """Does what the policy says about the holder, and returns how long to wait before asking again.

        Raises:
            InvalidRequest: LEASE_CONFLICT, the refusal is final; or the refusal itself when it is another.
            Unavailable: A dead holder's lease could not be given back.
        """
        if refused.code != "LEASE_CONFLICT":
            raise refused
        holder = str(refused.context.get("owner", ""))
        until = int(refused.context.get("expires_at", 0))
        verdict = self._policy.assess(holder)
        if verdict is Holder.DEAD:
            self._client.release_lease(self._group, holder)
            return 0.0
        seen = self._seen = self._seen or (holder, until)
        renewed = holder != seen[0] or until > seen[1] + _CLOCKS_DIFFER_MS
        if verdict is Holder.ALIVE or renewed:
            raise self._conflict(f"is being consumed by {holder}", holder) from None
        return min(max(until / 1000 - time.time(), 0.05), _LONGEST_PAUSE_S)

    def _conflict(self, what: str, holder: str) -> LakeMQError:
        return from_code(
            "LEASE_CONFLICT",
            f"group {self._group} {what}; {self._policy.advice(holder)}",
            group=self._group,
            owner=holder,
        )
