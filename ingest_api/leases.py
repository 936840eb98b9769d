"""Fences group commits: a driver that lost its lease may not move the group's offsets.

Owns the newest fencing epoch of each group that took a lease since this broker started. What never
breaks: a commit with an epoch older than the newest granted one is refused, also after a restart,
because then no epoch is known and the driver has to renew (the store gives the same owner the same
epoch, and another owner a higher one). Called by routes/groups.py on the event loop.
"""

from __future__ import annotations

from store_native import Store
from store_native.errors import InvalidRequest


class Leases:
    """Grants leases and checks their epochs.

    Args:
        store: Keeps who holds a group, and until when.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest: dict[str, int] = {}

    def acquire(self, group: str, owner: str, ttl_ms: int) -> tuple[int, int]:
        """Takes or renews a lease; returns its epoch and its end in epoch ms.

        Raises:
            InvalidRequest: LEASE_CONFLICT; somebody else holds it.
        """
        epoch, expires_at = self._store.acquire_lease(group, owner, ttl_ms)
        self._newest[group] = max(epoch, self._newest.get(group, epoch))
        return epoch, expires_at

    def release(self, group: str, owner: str) -> bool:
        """Gives a lease back; its epoch stays the newest until the next one is granted."""
        return self._store.release_lease(group, owner)

    def check(self, group: str, epoch: int) -> None:
        """Refuses a commit under another epoch than the newest.

        Raises:
            InvalidRequest: LEASE_CONFLICT.
        """
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
