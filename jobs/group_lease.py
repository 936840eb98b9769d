"""The broker's lease on a group: one active job per group.

Owns a renewing thread. Never breaks: `check` fails before another job can have taken the group, by
the holder's own monotonic clock. Taken by `lakemq consume` before it starts its query, checked by the
group job before each ledger commit, and its epoch goes with each report of offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from lakemq.client import Client
from store_native.errors import InvalidRequest, LakeMQError, from_code

_log = logging.getLogger(__name__)


class GroupLease:
    """Holds a group for one owner and renews it in the background."""

    def __init__(
        self,
        client: Client,
        group: str,
        owner: str,
        ttl_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._group = group
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._valid_until = 0.0
        self._lost: LakeMQError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{group}", daemon=True)
        self.epoch = 0

    def acquire(self) -> None:
        """Takes the group and starts renewing.

        Raises:
            InvalidRequest: LEASE_CONFLICT when another job holds it.
        """
        self._renew()
        self._thread.start()

    def check(self) -> None:
        """Raises when the lease may have passed to somebody else (LEASE_CONFLICT)."""
        if self._lost is not None:
            raise self._lost
        if self._clock() >= self._valid_until:
            raise from_code(
                "LEASE_CONFLICT",
                f"the lease on group {self._group} ran out: the broker was not reached for {self._ttl_ms} ms",
            )

    def release(self) -> None:
        """Stops renewing and gives the group back, as far as the broker can be reached."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._client.release_lease(self._group, self._owner)
        except LakeMQError as error:
            _log.warning(
                "the lease on group %s was not given back and runs out by itself: %s", self._group, error
            )

    def _renew(self) -> None:
        asked_at = self._clock()
        lease = self._client.acquire_lease(self._group, self._owner, self._ttl_ms)
        self.epoch = lease.epoch
        self._valid_until = asked_at + self._ttl_ms / 1000

    def _keep(self) -> None:
        while not self._stop.wait(self._ttl_ms / 3000):
            try:
                self._renew()
            except InvalidRequest as error:
                self._lost = error
                return
            except LakeMQError as error:
                _log.warning("the lease on group %s could not be renewed yet: %s", self._group, error)
