"""Whom name servers know this broker as: its own, which it sits beside, and the others.

Owns what the broker says of itself, and under which id.

Invariants: one broker is registered under one id at a time: the master as 0, also one that was promoted; who
was master and is it no more, under none.

Threads: the event loop; the table of topics is read on the read pool.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any

from ha_replicator.http_question import ask
from ha_replicator.identity import MASTER_ID
from ha_replicator.nameserver import BrokerRegistration, Registrar, RouteTables
from ingest_api.broker.replication import ReplicationService
from ingest_api.broker.settings import BrokerSettings
from ingest_api.broker.thread_pools import ReadPool
from ingest_api.broker.topics import queue_data
from lakemq.tls.trust import Trust
from store_native import Store


class RegistrationService:
    """Keeps one broker registered.

    Args:
        settings: Of the broker.
        address: Where its front door answers, ``http://host:port``.
        store: Has its topics and its epoch.
        replication: Has its role, and where slaves connect.
        tables: The embedded name server's.
        reads: Runs what may touch the disk.
        trust: Whose certificates are believed.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        store: Store,
        replication: ReplicationService,
        tables: RouteTables,
        reads: ReadPool,
        trust: Trust,
    ) -> None:
        self._settings = settings
        self._address = address
        self._store = store
        self._replication = replication
        self._tables = tables
        self._reads = reads
        self._registered_id: int | None = None
        self._registrar = Registrar(
            settings.nameservers,
            self._describe,
            settings.cluster_secret,
            question=partial(ask, trust=trust),
            on_epoch=replication.heard_of_epoch,
            every_s=settings.nameserver_heartbeat_s,
        )
        self._register_embedded()

    def start(self) -> None:
        """Begins to register with the other name servers."""
        self._registrar.start()

    async def stop(self) -> None:
        """Says goodbye to them."""
        await self._registrar.stop()

    def role_changed(self) -> None:
        """Registers under the id of the role it has now."""
        self._register_embedded()
        self._registrar.changed()

    def topics_changed(self) -> None:
        """Registers with the topics it holds now; the embedded tables follow each change by themselves."""
        self._registrar.changed()

    def _register_embedded(self) -> None:
        before, self._registered_id = self._registered_id, self._id_in_routes()
        if before is not None and before != self._registered_id:
            self._tables.unregister(self._settings.broker_name, before)
        if self._registered_id is not None:
            topics = json.loads(self._store.topics_json())
            self._tables.register(self._registration(self._registered_id, topics, ""), pinned=True)

    async def _describe(self) -> BrokerRegistration | None:
        """Says what this broker is and holds now; None: nothing that anybody should ask."""
        broker_id = self._id_in_routes()
        if broker_id is None:
            return None
        topics = await self._reads.run(self._store.topics_json)
        version = hashlib.sha256(topics).hexdigest()
        return self._registration(broker_id, await self._reads.run(json.loads, topics), version)

    def _id_in_routes(self) -> int | None:
        if self._replication.is_master:
            return MASTER_ID
        own = self._settings.replication.broker_id
        return None if own == MASTER_ID else own

    def _registration(
        self, broker_id: int, topics: list[dict[str, Any]], data_version: str
    ) -> BrokerRegistration:
        return BrokerRegistration(
            cluster=self._settings.cluster,
            broker_name=self._settings.broker_name,
            broker_id=broker_id,
            address=self._address,
            data_version=data_version,
            topics={str(config["topic"]): queue_data(config) for config in topics},
            replication_address=self._replication.address,
            epoch=self._store.epoch if self._replication.is_master else 0,
            store_id=self._store.store_id,
            heartbeat_s=self._settings.nameserver_heartbeat_s,
            log_parted=self._replication.log_parted is not None,
        )
