"""Consumer groups: what there are, their configuration and what goes with them.

Owns a group's path from a front door's request to its record in the store.

Invariants: a change is reported as settled only when its record is flushed and every reader sees it; a group
that a driver holds is deleted under its lease's epoch only.

Threads: the event loop; the store's part runs on the read pool.
"""

from __future__ import annotations

from ingest_api.broker.groups.leases import Leases
from ingest_api.broker.mastership import CheckMaster
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.thread_pools import ReadPool
from ingest_api.broker.topics import Change, Settle, TopicService
from store_native import Store
from store_native.errors import InvalidRequest
from store_native.names import retry_topic


class GroupService:
    """Administers groups.

    Args:
        store: Keeps them.
        leases: Says who may delete one.
        reads: Runs what may touch the disk.
        settle: Waits for a change.
        topics: Makes and deletes a group's retry topic.
        metrics: Forgets labels of what is gone.
        check_master: Refuses changes where this is a slave.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        reads: ReadPool,
        settle: Settle,
        topics: TopicService,
        metrics: BrokerMetrics,
        check_master: CheckMaster,
    ) -> None:
        self._store = store
        self._leases = leases
        self._topics = topics
        self._reads = reads
        self._settle = settle
        self._metrics = metrics
        self._check_master = check_master

    async def page(self, after: str, limit: int) -> bytes:
        """Returns groups behind ``after`` by name, as a JSON array of at most ``limit``."""
        return await self._reads.run(self._store.groups_json, after, limit)

    def get(self, group: str) -> bytes:
        """Returns a group's configuration as JSON.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST.
        """
        config = self._store.group_json(group)
        if config is None:
            raise InvalidRequest("GROUP_NOT_EXIST", f"group[{group}] not exist", group=group)
        return bytes(config)

    async def put(
        self,
        group: str,
        *,
        retry_max_times: int | None = None,
        consume_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        attributes: dict[str, str] | None = None,
    ) -> Change:
        """Creates a group and its retry topic, or changes what is given of it.

        Raises:
            InvalidRequest: GROUP_ILLEGAL, ARGUMENT_ILLEGAL, ...
            Unavailable: NOT_MASTER.
        """
        self._check_master()

        def put() -> tuple[bool, int]:
            is_new = self._store.group_json(group) is None
            return is_new, self._store.put_group(
                group,
                retry_max_times=retry_max_times,
                consume_enable=consume_enable,
                consume_broadcast_enable=consume_broadcast_enable,
                attributes=attributes,
            )

        is_new, end_offset = await self._reads.run(put)
        settled = await self._settle(end_offset)
        if settled:
            self._topics.refresh(retry_topic(group))
        return Change(is_new, settled)

    async def delete(self, group: str, lease_epoch: int | None = None) -> Change:
        """Deletes a group, its committed offsets and its lease.

        Args:
            group: The group.
            lease_epoch: The epoch of the lease it is deleted under; None where nobody holds the group.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST; LEASE_CONFLICT, nothing was deleted.
            Unavailable: NOT_MASTER.
        """
        self._check_master()
        self.get(group)

        def delete() -> int:
            self._leases.check(group, lease_epoch)
            return self._store.delete_group(group)

        settled = await self._settle(await self._reads.run(delete))
        if settled:
            self._metrics.forget_group(group)
        return Change(False, settled)
