"""The broker's lease on a group: one active job per group.

Owns a renewing thread. Never breaks: `check` passes only while no other job can have taken the group,
by the holder's own monotonic clock; and a lease that ran out while the broker was away goes on under
its old epoch or not at all: a new epoch says that somebody else had the group meanwhile. Taken by
`lakemq consume` before it starts its query, checked by the group job before and after each ledger
commit, and its epoch goes with each report of offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.lease_owner import LeaseOwner
from lakemq.client import Client
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable, from_code

_log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long a job waits for a broker that is away before it gives its group up."""
_LONGEST_PAUSE_S = 1.0
_CLOCKS_DIFFER_MS = 1_000
"""The broker adds what is left by one clock to the time of another: less than this is no renewal."""


class GroupLease:
    """Holds a group for one owner and renews it in the background."""

    def __init__(
        self,
        client: Client,
        group: str,
        owner: LeaseOwner,
        ttl_ms: int,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describes the lease; `acquire` takes it.

        Args:
            client: the broker.
            group: the group.
            owner: this run of this checkpoint.
            ttl_ms: how long the broker keeps the lease without a renewal.
            patience_s: how long a broker that is away is waited for.
            clock: monotonic seconds.
        """
        self._client = client
        self._group = group
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._patience_s = patience_s
        self._clock = clock
        self._valid_until = 0.0
        self._lost: LakeMQError | None = None
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        self._impatient = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{group}", daemon=True)
        self.epoch = 0

    def acquire(self) -> None:
        """Takes the group and starts renewing.

        A holder that died on this machine is not waited for, and one of the same checkpoint elsewhere, or
        of a release that did not name its process, until its lease runs out.

        Raises:
            InvalidRequest: LEASE_CONFLICT when another job holds it.
        """
        seen: tuple[str, int] | None = None
        while True:
            try:
                self._renew()
                break
            except InvalidRequest as refused:
                if refused.code != "LEASE_CONFLICT":
                    raise
                text, until = str(refused.context.get("owner")), int(refused.context.get("expires_at", 0))
                holder = LeaseOwner.parse(text)
                if holder is not None and holder.is_dead():
                    self._client.release_lease(self._group, text)
                    continue
                # Only a copy of this checkpoint, or this checkpoint on another host, has its id.
                # The release before named the checkpoint alone: that process is seen by its renewals only.
                same = self._owner.checkpoint in (text, holder.checkpoint if holder else None)
                alive_here = holder is not None and holder.machine == self._owner.machine
                seen = seen or (text, until)
                renewed = text != seen[0] or until > seen[1] + _CLOCKS_DIFFER_MS
                if not same or alive_here or renewed:
                    raise self._conflict(text, same) from None
            self._stop.wait(min(max(until / 1000 - time.time(), 0.05), _LONGEST_PAUSE_S))
        self._thread.start()

    def check(self) -> None:
        """Makes sure that nobody else can have taken the group; waits for a broker that is away.

        Raises:
            InvalidRequest: LEASE_CONFLICT when another job holds the group, or held it meanwhile.
            Unavailable: the broker was away for too long.
        """
        if self._lost is not None:
            raise self._lost
        if self._clock() >= self._valid_until:
            self.confirm()

    def confirm(self) -> None:
        """Asks the broker whether the group is still ours, and waits while it is away; raises as `check`."""
        deadline = self._clock() + self._patience_s
        pause = 0.1
        while True:
            if self._lost is not None:
                raise self._lost
            try:
                self._renew()
                return
            except (Unavailable, Closed) as error:
                if self._clock() >= deadline or self._impatient.is_set():
                    raise Unavailable(
                        "SERVICE_NOT_AVAILABLE",
                        f"the lease on group {self._group} could not be renewed: {error.detail}",
                    ) from error
                self._impatient.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def end_patience(self) -> None:
        """No longer waits for a broker that is away: the job stops."""
        self._impatient.set()

    def release(self) -> None:
        """Stops renewing and gives the group back, as far as the broker can be reached."""
        self._impatient.set()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._client.release_lease(self._group, str(self._owner))
        except LakeMQError as error:
            _log.warning(
                "the lease on group %s was not given back and runs out by itself: %s", self._group, error
            )

    def _renew(self) -> None:
        """Renews once; whoever refuses for good is remembered."""
        with self._renewing:
            asked_at = self._clock()
            try:
                lease = self._client.acquire_lease(self._group, str(self._owner), self._ttl_ms)
            except InvalidRequest as error:
                if self.epoch:
                    self._lost = error
                raise
            if self.epoch not in (0, lease.epoch):
                self._lost = from_code(
                    "LEASE_CONFLICT",
                    f"the lease on group {self._group} ran out, and another job had the group meanwhile",
                    group=self._group,
                )
                raise self._lost
            self.epoch = lease.epoch
            self._valid_until = asked_at + self._ttl_ms / 1000

    def _keep(self) -> None:
        while not self._stop.wait(self._ttl_ms / 3000):
            try:
                self._renew()
            except InvalidRequest:
                return
            except LakeMQError as error:
                _log.warning("the lease on group %s could not be renewed yet: %s", self._group, error)

    def _conflict(self, owner: str, same_checkpoint: bool) -> LakeMQError:
        advice = (
            "it runs from this checkpoint or a copy of it: a checkpoint is for one job, delete the copy"
            if same_checkpoint
            else "one job drives a group: stop that one, or use another group"
        )
        return from_code(
            "LEASE_CONFLICT",
            f"group {self._group} is being consumed by {owner}; {advice}",
            group=self._group,
            owner=owner,
        )
