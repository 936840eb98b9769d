"""The right of one query to drive a consumer group.

Owns taking, renewing and giving back the lease at the broker.

Invariants: while a live query holds it a second one fails and names the owner; a dead owner's lease is
waited out, so a restart after a crash goes on by itself; and a lease that ran out while the broker was away
goes on unless another query has had the group meanwhile. The fencing epoch goes with every progress report.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from types import FrameType

from lakemq.client import Client, Lease
from store_native.errors import LakeMQError, from_code
from structured_streaming.patience import may_pass

log = logging.getLogger("lakemq.spark")

TTL_MS = 15_000
_RENEWALS_PER_TTL = 5


class GroupLease:
    """One query's lease on one group.

    Args:
        client: The broker.
        group: The group.
        ttl_ms: How long the broker keeps it without a renewal.
    """

    def __init__(self, client: Client, group: str, ttl_ms: int = TTL_MS) -> None:
        self.owner = f"spark/{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._client = client
        self._group = group
        self._ttl_ms = ttl_ms
        self._stop = threading.Event()
        self._lost: LakeMQError | None = None
        self._lease: Lease | None = None

    def hold(self) -> int:
        """Makes sure that this query holds the lease; the first call takes it.

        Returns:
            The fencing epoch.

        Raises:
            LakeMQError: LEASE_CONFLICT when another query holds it, or took it since.
        """
        if self._lost is not None:
            raise self._lost
        if self._lease is None:
            self._lease = self._acquire()
            _stop_reader_on_sigterm()
            threading.Thread(target=self._renew, name="lakemq-lease", daemon=True).start()
        return self._lease.epoch

    def renew(self) -> int:
        """Renews the lease now, as the broker asks for after its restart; returns its epoch.

        Raises:
            LakeMQError: LEASE_CONFLICT when another query holds it, or held it meanwhile.
        """
        lease = self._client.acquire_lease(self._group, self.owner, self._ttl_ms)
        if self._lease is not None and lease.epoch != self._lease.epoch:
            # The store gives an owner its old epoch back unless there was another owner.
            self._lost = self._conflict("another owner in the meantime")
            raise self._lost
        self._lease = lease
        return lease.epoch

    def release(self) -> None:
        """Gives the lease back; a broker that is away lets it run out instead."""
        self._stop.set()
        if self._lease is None:
            return
        self._lease = None
        try:
            self._client.release_lease(self._group, self.owner)
        except LakeMQError as error:
            log.warning("group %s: lease not given back, it runs out by itself: %s", self._group, error)

    def _acquire(self) -> Lease:
        """Takes the lease.

        On a conflict waits until the other lease runs out; an owner that renews it meanwhile is alive, and
        that is the error.
        """
        seen: tuple[str, int] | None = None
        while True:
            try:
                return self._client.acquire_lease(self._group, self.owner, self._ttl_ms)
            except LakeMQError as error:
                if error.code != "LEASE_CONFLICT":
                    raise
                owner, until = str(error.context.get("owner", "")), int(error.context.get("expires_at", 0))
                if seen is not None and seen != (owner, until):
                    raise self._conflict(owner) from None
                seen = (owner, until)
            time.sleep(min(max(until / 1000 - time.time(), 0.05), self._ttl_ms / 1000 / _RENEWALS_PER_TTL))

    def _renew(self) -> None:
        while not self._stop.wait(self._ttl_ms / 1000 / _RENEWALS_PER_TTL):
            try:
                self.renew()
            except LakeMQError as error:
                if may_pass(error):
                    log.warning("group %s: lease not renewed, trying again: %s", self._group, error)
                    continue
                owner = str(error.context.get("owner", "another owner"))
                self._lost = self._lost or (
                    self._conflict(owner) if error.code == "LEASE_CONFLICT" else error
                )
                return

    def _conflict(self, owner: str) -> LakeMQError:
        return from_code(
            "LEASE_CONFLICT",
            f"group {self._group} is being consumed by {owner}: one query per group at a time. Stop that "
            "query, use another group, or set groupLease=false for a read that only looks",
            group=self._group,
            owner=owner,
        )


def _stop_reader_on_sigterm() -> None:
    """Lets the process of a streaming source end in order when Spark ends it.

    Spark 4.2 stops a query by sending SIGTERM to the source's Python process; without a handler it
    dies at once and the reader's stop() is never called.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
    sys.exit(0)
