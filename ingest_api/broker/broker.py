"""The composition root of the broker core: builds its services, starts and stops them in order.

Owns the store and everything that lives as long as it does.

Invariants: the order at a stop - held pulls are let go, requests finish, threads end, the eventfd's reader
goes, the store closes last.

Threads: the event loop, in which it is built. It knows no protocol: front doors (ingest_api/http) are built
on top of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from dataclasses import asdict
from typing import Any

from ha_replicator.identity import MASTER_ID
from ha_replicator.nameserver import BrokerRegistration, NameServer, Registrar, RouteTables
from ha_replicator.nameserver.route_tables import SCAN_EVERY_S
from ingest_api.broker.admission import Admission
from ingest_api.broker.flush_wait import FlushWaiter, SendStatus
from ingest_api.broker.gauges import Gauges
from ingest_api.broker.groups.group_service import GroupService
from ingest_api.broker.groups.leases import Leases
from ingest_api.broker.groups.offsets import GroupOffsets
from ingest_api.broker.lookup_service import LookupService
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.pull_hold import PullHold
from ingest_api.broker.pull_service import PullService
from ingest_api.broker.replication import ReplicationService
from ingest_api.broker.send_service import SendService
from ingest_api.broker.settings import BrokerSettings
from ingest_api.broker.store_events import StoreEvents
from ingest_api.broker.thread_pools import BulkPool, ReadPool
from ingest_api.broker.topics import TopicService, queue_data
from store_native import Store
from store_native.errors import Closed, Unavailable

log = logging.getLogger("lakemq.broker")

_DISK_EVERY_S = 2.0


class Broker:
    """A serving broker.

    Args:
        settings: Checked settings.
        address: Where its front door answers, ``http://host:port``; what routes say.
        store_host: IPv4 or IPv6 address and port that go into offset message ids.

    Raises:
        LakeMQError: The store does not open (STORE_LOCKED, DATA_CORRUPT, ...).
    """

    def __init__(self, settings: BrokerSettings, address: str, store_host: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        limits = settings.limits
        self.settings = settings
        self.address = address
        self.stopped = False
        self.store = store = open_store(settings, store_host)
        self.metrics = metrics = BrokerMetrics(group_exists=lambda group: store.group_json(group) is not None)
        self.tables = RouteTables()
        self.name_server = NameServer(self.tables, settings.cluster_secret)
        self.leases = Leases(store)
        self.store_events = StoreEvents(store, loop)
        self.flush_waiter = FlushWaiter(
            store,
            self.store_events,
            loop,
            sync_flush=settings.store.flush == "sync",
            timeout_s=limits.sync_flush_timeout_s,
        )
        self.pull_hold = PullHold(store, self.store_events, loop)
        self.admission = Admission(limits, metrics)
        self.replication = ReplicationService(
            settings,
            store,
            self.store_events,
            replicas_changed=self.flush_waiter.replicas_changed,
            role_changed=self._role_changed,
        )
        self._ask_replicas()
        self.bulk = BulkPool(limits.bulk_threads, self.admission.check_queue_wait)
        self.reads = ReadPool()
        self.send = SendService(store, self.flush_waiter, self.admission, self.bulk, metrics, limits)
        self.pull = PullService(store, self.pull_hold, self.reads, metrics)
        self.gauges = Gauges(store, self.admission)
        self.lookups = LookupService(store, self.reads, limits.max_query_bytes)
        self.topics = TopicService(store, self.reads, self.settle, self.tables, metrics, settings.broker_name)
        self.groups = GroupService(store, self.reads, self.settle, self.topics, metrics)
        self.group_offsets = GroupOffsets(store, self.leases, self.reads, self.settle)
        self._registered_id: int | None = None
        self._register_self()
        self.registrar = Registrar(
            settings.nameservers,
            self._describe,
            settings.cluster_secret,
            every_s=settings.nameserver_heartbeat_s,
        )
        self._topic_changes = store.topic_changes
        self._alarm = store.alarm_fd()
        loop.add_reader(self._alarm, self._on_alarm)
        self._housekeeping = loop.create_task(self._keep_house())

    async def start(self, host: str) -> None:
        """Begins what needs others: slaves connect, or this one follows its master; name servers hear of it.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the replication port is taken.
        """
        await self.replication.start(host)
        self.registrar.start()

    @property
    def store_id(self) -> str:
        """Which store this is; another one after its directory was made anew."""
        return self.store.store_id

    @property
    def epoch(self) -> int:
        """Of the master whose log it is."""
        return self.store.epoch

    @property
    def delay_levels_ms(self) -> list[int]:
        """Milliseconds of delay level 1 and so on."""
        return self.store.delay_levels()

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening the store had to do; see ``Store.recovery``."""
        return dict(self.store.recovery)

    def check_ready(self) -> None:
        """Returns when it takes messages and what is stored can be read.

        Raises:
            Closed: STORE_POISONED.
            Unavailable: SERVICE_NOT_AVAILABLE, dispatch fails or the broker is stopping.
        """
        if reason := self.store.poisoned:
            raise Closed("STORE_POISONED", f"the store takes no more messages: {reason}")
        if reason := self.store.dispatch_failure:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"stored messages cannot be read: {reason}")
        if self.admission.closing:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "the broker is stopping")

    async def settle(self, end_offset: int) -> bool:
        """Waits until an administrative record is flushed and dispatched; False after the time-out."""
        waiting = self.flush_waiter.wait_change(end_offset)
        return True if waiting is None else await waiting

    def pending_status(self) -> SendStatus:
        """Says what is missing to a change that :meth:`settle` gave up."""
        return self.flush_waiter.shortfall(self.store.watermarks()[0])

    def begin_stop(self) -> None:
        """Lets held pulls go and refuses new sends; front doors call it before they wait for requests."""
        self.admission.closing = True
        self.pull_hold.close()

    async def stop(self) -> None:
        """Ends threads and closes the store; called once, after the last request."""
        self.stopped = True
        self.begin_stop()
        self._housekeeping.cancel()
        await self.registrar.stop()
        await self.replication.stop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.bulk.close)
        await loop.run_in_executor(None, self.reads.close)
        self.flush_waiter.close()
        self.store_events.close()
        loop.remove_reader(self._alarm)
        try:
            await loop.run_in_executor(None, self.store.close)
        finally:
            self._log_events()  # nobody takes them later
        log.info("store closed", extra={"fields": {"path": self.settings.store.path}})

    def _register_self(self) -> None:
        """Registers with the embedded name server."""
        before, self._registered_id = self._registered_id, self._id_in_routes()
        if before is not None and before != self._registered_id:
            self.tables.unregister(self.settings.broker_name, before)
        if self._registered_id is not None:
            topics = json.loads(self.store.topics_json())
            self.tables.register(self._registration(self._registered_id, topics, ""), pinned=True)

    async def _describe(self) -> BrokerRegistration | None:
        """Says to name servers what this broker is and holds now; None: nothing that anybody should ask."""
        broker_id = self._id_in_routes()
        if broker_id is None:
            return None
        topics = await self.reads.run(self.store.topics_json)
        version = hashlib.sha256(topics).hexdigest()
        return self._registration(broker_id, await self.reads.run(json.loads, topics), version)

    def _id_in_routes(self) -> int | None:
        """The master answers as 0, also one that was promoted; who was it and is no more, to nobody."""
        if self.replication.is_master:
            return MASTER_ID
        own = self.settings.replication.broker_id
        return None if own == MASTER_ID else own

    def _registration(
        self, broker_id: int, topics: list[dict[str, object]], data_version: str
    ) -> BrokerRegistration:
        return BrokerRegistration(
            cluster=self.settings.cluster,
            broker_name=self.settings.broker_name,
            broker_id=broker_id,
            address=self.address,
            data_version=data_version,
            topics={str(config["topic"]): queue_data(config) for config in topics},
            replication_address=self.replication.address,
            epoch=self.epoch if self.replication.is_master else 0,
        )

    def _role_changed(self) -> None:
        self._ask_replicas()
        self._register_self()
        self.registrar.changed()
        self.flush_waiter.replicas_changed()

    def _ask_replicas(self) -> None:
        replication = self.replication
        # What a broker stored before it became a slave is safe nowhere any more.
        reach = replication.in_reach if replication.asks_replicas else None
        self.flush_waiter.in_reach = reach if replication.is_master else _nobody
        self.admission.slave_of = None if replication.is_master else replication.master or ""

    def _on_alarm(self) -> None:
        """The store became read-only for good: its operator reads so now, not at the next round."""
        asyncio.get_running_loop().remove_reader(self._alarm)  # it rings once
        self._log_events()

    def _log_events(self) -> None:
        """Writes what the store has to say to the broker's log."""
        for severity, text in self.store.take_events():
            log.log(logging.ERROR if severity == "error" else logging.WARNING, "store: %s", text)

    def _look_at_dispatch(self) -> None:
        before, now = self.admission.dispatch_failure, self.store.dispatch_failure
        self.admission.dispatch_failure = now
        if before is None and now is not None:
            log.error("dispatch fails, sends are refused", extra={"fields": {"reason": now}})
        elif before is not None and now is None:
            log.warning("dispatch works again")

    async def _keep_house(self) -> None:
        """Measures the disk and drops silent brokers from the tables, every few seconds."""
        loop = asyncio.get_running_loop()
        next_scan = loop.time() + SCAN_EVERY_S
        while True:
            was_full = self.admission.disk_full
            self.admission.set_disk_used(self.store.stats().get("disk_used_ratio", 0.0))
            if was_full != self.admission.disk_full:
                fields = {"disk_used_ratio": round(self.admission.disk_used_ratio, 4)}
                log.warning(
                    "disk full, sends are refused" if not was_full else "disk has space again",
                    extra={"fields": fields},
                )
            self._look_at_dispatch()
            self._log_events()
            if self._topic_changes != (changes := self.store.topic_changes):
                self._topic_changes = changes  # sends make topics, too
                self.registrar.changed()
            if loop.time() >= next_scan:
                next_scan = loop.time() + SCAN_EVERY_S
                for name, broker_id in self.tables.expire():
                    log.warning(
                        "broker sent no heartbeat", extra={"fields": {"broker": name, "id": broker_id}}
                    )
            await asyncio.sleep(_DISK_EVERY_S)


def _nobody() -> bool:
    return False


def open_store(settings: BrokerSettings, store_host: tuple[str, int]) -> Store:
    """Opens the store as the settings say; recovery runs in here."""
    options = asdict(settings.store)
    path = options.pop("path")
    return Store(
        path,
        broker_name=settings.broker_name,
        cluster=settings.cluster,
        store_host=store_host,
        max_message_bytes=settings.limits.max_message_bytes,
        role="slave" if settings.replication.role == "slave" else "master",
        asks_replicas=settings.replication.role == "sync-master",
        **options,
    )
