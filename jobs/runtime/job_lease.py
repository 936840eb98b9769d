"""The lease of a group's job, taken before its query starts.

Owns what one job makes of another that holds its group. The group job checks the lease before and after each
ledger commit, and its epoch goes with each report of offsets.

Invariants: a holder that died on this machine is not waited for, and one of the same checkpoint elsewhere, or
of a release that did not name its process, until its lease runs out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.runtime.lease_owner import LeaseOwner
from lakemq.client import Client
from lakemq.client.group_lease import GroupLease, Holder

OUTAGE_TIMEOUT_S = 120.0
"""How long a job waits for a broker that is away before it gives its group up."""


@dataclass(frozen=True, slots=True)
class OneJobPerGroup:
    """The policy of a job.

    Attributes:
        owner: This run of this checkpoint.
    """

    owner: LeaseOwner

    def assess(self, holder: str) -> Holder:
        """Looks whether the holder's process is dead, or could be a copy of this checkpoint."""
        other = LeaseOwner.parse(holder)
        if other is not None and other.is_dead():
            return Holder.DEAD
        alive_here = other is not None and other.machine == self.owner.machine
        return Holder.MAY_RUN_OUT if self._is_ours(holder) and not alive_here else Holder.ALIVE

    def advice(self, holder: str) -> str:
        """Says what to stop, or to delete."""
        if self._is_ours(holder):
            return "it runs from this checkpoint or a copy of it: one job has a checkpoint, delete the copy"
        return "one job drives a group: stop that one, or use another group"

    def _is_ours(self, holder: str) -> bool:
        # Only a copy of this checkpoint, or this checkpoint on another host, has its id.
        # The release before named the checkpoint alone: that process is seen by its renewals only.
        other = LeaseOwner.parse(holder)
        return self.owner.checkpoint in (holder, other.checkpoint if other else None)


def job_lease(
    client: Client,
    group: str,
    owner: LeaseOwner,
    ttl_ms: int,
    *,
    outage_timeout_s: float = OUTAGE_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
) -> GroupLease:
    """Describes a job's lease; `acquire` takes it."""
    return GroupLease(
        client,
        group,
        str(owner),
        OneJobPerGroup(owner),
        ttl_ms,
        outage_timeout_s=outage_timeout_s,
        clock=clock,
    )
