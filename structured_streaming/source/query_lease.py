"""The lease of a streaming query with a group, taken before it resolves its start.

Owns the query's name at the broker, what it makes of another query that holds its group, and that the lease
is given back when Spark ends the source's process.

Invariants: a dead query's lease is waited out, so a restart after a crash goes on by itself; the fencing
epoch goes with every progress report.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import uuid
from types import FrameType

from lakemq.client import Client
from lakemq.client.group_lease import GroupLease, Holder

TTL_MS = 15_000


class OneQueryPerGroup:
    """The policy of a query: nobody can tell from here whether another one lives but by its renewals."""

    def assess(self, holder: str) -> Holder:
        """Waits each holder out."""
        return Holder.MAY_RUN_OUT

    def advice(self, holder: str) -> str:
        """Says what to stop, or to use."""
        return (
            "one query per group at a time: stop that query, use another group, or set groupLease=false for "
            "a read that only looks"
        )


def query_lease(client: Client, group: str, ttl_ms: int = TTL_MS) -> GroupLease:
    """Describes this query's lease; `hold` takes it.

    It does not wait for a broker that is away: a report is refused by its epoch, and repeated.
    """
    owner = f"spark/{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
    return GroupLease(client, group, owner, OneQueryPerGroup(), ttl_ms, outage_timeout_s=None)


def hold(lease: GroupLease) -> int:
    """Makes sure that this query holds its lease; the first call takes it. Returns the fencing epoch.

    Raises:
        LakeMQError: LEASE_CONFLICT when another query holds it, or took it since.
    """
    if not lease.epoch:
        lease.acquire()
        stop_reader_on_sigterm()
    return lease.check()


def stop_reader_on_sigterm() -> None:
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
