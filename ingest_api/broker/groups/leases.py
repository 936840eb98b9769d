"""Fences a group: only the driver that holds its lease may move its offsets or delete it.

Owns the newest fencing epoch of each group that took a lease since this broker started.

Invariants: a commit with an epoch older than the newest granted one is refused, also after a restart,
because then no epoch is known and the driver has to renew (the store gives the same owner the same epoch,
and another owner a higher one); a commit, reset or deletion without an epoch is refused while somebody holds
the group.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ingest_api.broker.mastership import CheckMaster
from store_native import Store
from store_native.errors import InvalidRequest


class Leases:
    """Grants leases and checks their epochs.

    Args:
        store: Keeps who holds a group, and until when.
        check_master: Refuses to grant where this is a slave.
    """

    def __init__(self, store: Store, check_master: CheckMaster) -> None:
        self._store = store
        self._check_master = check_master
        self._newest: dict[str, int] = {}

    def acquire(self, group: str, owner: str, ttl_ms: int) -> tuple[int, int]:
        """Takes or renews a lease; returns its epoch and its end in epoch ms.

        Raises:
            InvalidRequest: LEASE_CONFLICT; somebody else holds it.
            Unavailable: NOT_MASTER; SERVICE_NOT_AVAILABLE, the record is not confirmed yet.
        """
        self._check_master()
        epoch, expires_at = self._store.acquire_lease(group, owner, ttl_ms)
        self._newest[group] = max(epoch, self._newest.get(group, epoch))
        return epoch, expires_at

    def release(self, group: str, owner: str) -> bool:
        """Gives a lease back; its epoch stays the newest until the next one is granted."""
        return self._store.release_lease(group, owner)

    def check(self, group: str, epoch: int | None) -> None:
        """Refuses to change a group under another epoch than the newest, or without one while it is held.

        Raises:
            InvalidRequest: LEASE_CONFLICT; without an epoch it names the owner.
        """
        if epoch is None:
            self._refuse_while_held(group)
            return
        newest = self._newest.get(group)
        if newest == epoch:
            return
        if newest is None:
            raise InvalidRequest(
                "LEASE_CONFLICT",
                f"no lease on {group} was granted or renewed since the broker started; renew, then commit",
                epoch=epoch,
                renew=True,
            )
        raise InvalidRequest(
            "LEASE_CONFLICT",
            f"epoch {epoch} is stale, the newest lease on {group} has {newest}",
            epoch=epoch,
            newest_epoch=newest,
            renew=False,
        )

    def _refuse_while_held(self, group: str) -> None:
        held = self._store.lease_or_claim(group)
        if held is None:
            return
        owner, epoch, expires_at = held
        until = datetime.fromtimestamp(expires_at / 1000, UTC).isoformat(timespec="seconds")
        raise InvalidRequest(
            "LEASE_CONFLICT",
            f"{group} is held by {owner} until {until} unless renewed, with lease_epoch {epoch}; stop that "
            "driver first, or act in its name with that epoch",
            owner=owner,
            held_epoch=epoch,
            expires_at=expires_at,
        )
