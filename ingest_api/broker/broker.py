"""The composition root of the broker core: builds its services, starts and stops them in order.

Owns the store and everything that lives as long as it does.

Invariants: the order at a stop - held pulls are let go, requests finish, threads end, the eventfd's reader
goes, the store closes last.

Threads: the event loop, in which it is built. It knows no protocol: front doors (ingest_api/http) are built
on top of it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any

from ha_replicator.nameserver import HeartbeatScan, NameServer, RouteTables
from ingest_api.broker.admission import Admission
from ingest_api.broker.deleted_lists import DeletedLists
from ingest_api.broker.flush_wait import FlushWaiter, SendStatus
from ingest_api.broker.gauges import Gauges
from ingest_api.broker.groups.group_service import GroupService
from ingest_api.broker.groups.handled_batches import HandledBatches
from ingest_api.broker.groups.leases import Leases
from ingest_api.broker.groups.offsets import GroupOffsets
from ingest_api.broker.groups.offsets_aside import OffsetsAside
from ingest_api.broker.groups.offsets_handover import HERE, OffsetsHandover
from ingest_api.broker.housekeeping import EVERY_S, Housekeeping
from ingest_api.broker.lookup_service import LookupService
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.ordered_sends import OrderedSends
from ingest_api.broker.pull_hold import PullHold
from ingest_api.broker.pull_service import PullService
from ingest_api.broker.registration import RegistrationService
from ingest_api.broker.replication import ReplicationService
from ingest_api.broker.send_service import SendService
from ingest_api.broker.settings import BrokerSettings
from ingest_api.broker.slave_reads import SlaveReads
from ingest_api.broker.store_events import StoreEvents
from ingest_api.broker.thread_pools import BulkPool, ReadPool
from ingest_api.broker.topics import TopicService
from lakemq.tls.trust import Trust
from store_native import Store
from store_native.errors import Closed, LakeMQError, Unavailable

log = logging.getLogger("lakemq.broker")


class Broker:
    """A serving broker.

    Args:
        settings: Checked settings.
        address: Where its front door answers, ``http://host:port``; what routes say.
        store_host: IPv4 or IPv6 address and port that go into offset message ids.
        look_every_s: Between two rounds of its housekeeping.

    Raises:
        LakeMQError: The store does not open (STORE_LOCKED, DATA_CORRUPT, ...).
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        store_host: tuple[str, int],
        *,
        look_every_s: float = EVERY_S,
    ) -> None:
        loop = asyncio.get_running_loop()
        limits = settings.limits
        self.settings = settings
        self.address = address
        self.stopped = False
        self.stop_failure: LakeMQError | None = None
        self.store = store = open_store(settings, store_host)
        self.metrics = metrics = BrokerMetrics(group_exists=lambda group: store.group_json(group) is not None)
        self.tables = RouteTables()
        self.name_server = NameServer(self.tables, settings.cluster_secret)
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
        trust = Trust(settings.tls.ca)
        self.replication = ReplicationService(
            settings,
            store,
            self.store_events,
            trust,
            replicas_changed=self.flush_waiter.replicas_changed,
            role_changed=self._role_changed,
            master_heard=self._master_heard,
        )
        check_master = self.replication.check_master
        self._ask_replicas()
        self.leases = Leases(store, check_master)
        self.handled_batches = HandledBatches(store, self.leases)
        self.bulk = BulkPool(limits.bulk_threads, self.admission.check_queue_wait)
        self.reads = ReadPool()
        ordered = OrderedSends(store, settings.broker_name)
        self.send = SendService(store, self.flush_waiter, self.admission, self.bulk, metrics, limits, ordered)
        self.pull = PullService(store, self.pull_hold, self.reads, metrics)
        self.slave_reads = SlaveReads(
            enabled=settings.replication.slave_reads,
            behind_bytes=settings.replication.slave_reads_behind_bytes,
            log_end=lambda: store.watermarks()[0],
            slave=self.replication.to_read_from,
        )
        self.gauges = Gauges(store, self.admission)
        self.lookups = LookupService(store, self.reads, limits.max_query_bytes)
        self.topics = TopicService(
            store,
            self.reads,
            self.settle,
            self.tables,
            metrics,
            settings.broker_name,
            DeletedLists(settings.store.path),
            on_deleted=self.pull_hold.wake_topic,
            check_master=check_master,
        )
        self.groups = GroupService(
            store, self.leases, self.reads, self.settle, self.topics, metrics, check_master
        )
        self._aside = OffsetsAside(settings.store.path, self.reads)
        self.group_offsets = GroupOffsets(
            store,
            self.leases,
            self.reads,
            self.settle,
            self._aside,
            is_alone=lambda: self.replication.is_alone,
            check_master=check_master,
        )
        self._handover = OffsetsHandover(self._aside, self.group_offsets.take, self._master_to_tell, trust)
        self.registration = RegistrationService(
            settings, address, store, self.replication, self.tables, self.reads, trust
        )
        self.housekeeping = Housekeeping(
            store, self.admission, self.registration.topics_changed, HeartbeatScan(self.tables), look_every_s
        )
        self.housekeeping.start()

    async def start(self, host: str) -> None:
        """Begins what needs others: slaves connect, or this one follows its master; name servers hear of it.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the replication port is taken.
        """
        await self.replication.start(host)
        self.registration.start()
        self._handover.start()

    @property
    def store_id(self) -> str:
        """Which store this is; another one after its directory was made anew."""
        return self.store.store_id

    @property
    def epoch(self) -> int:
        """Of the master whose log it is."""
        return self.store.epoch

    @property
    def log_epoch(self) -> int:
        """Of the log's newest bytes: a slave may have heard of a higher one."""
        return self.store.log_epoch

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
        """Ends threads and closes the store; called once, after the last request.

        A store that cannot be closed, or took no more messages, is as after a crash: `stop_failure` says why.
        """
        self.stopped = True
        self.begin_stop()
        await self.registration.stop()
        await self._handover.stop()
        await self.replication.stop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.bulk.close)
        await loop.run_in_executor(None, self.reads.close)
        self.flush_waiter.close()
        self.store_events.close()
        await self.housekeeping.stop()
        try:
            await loop.run_in_executor(None, self.store.close)
        except LakeMQError as error:
            self.stop_failure = error
        finally:
            self.housekeeping.log_events()  # nobody takes them later
        if self.stop_failure is None and (reason := self.store.poisoned):
            self.stop_failure = Closed("STORE_POISONED", reason)
        if self.stop_failure is not None:
            fields = {"path": self.settings.store.path, "reason": str(self.stop_failure)}
            log.error("the store is not closed, its next start recovers it", extra={"fields": fields})
            return
        log.info("store closed", extra={"fields": {"path": self.settings.store.path}})

    def _role_changed(self) -> None:
        self._ask_replicas()
        self.registration.role_changed()
        self.flush_waiter.replicas_changed()
        self._handover.master_changed()

    def _master_heard(self) -> None:
        self._handover.master_changed()

    def _master_to_tell(self) -> str | None:
        return HERE if self.replication.is_master else self.replication.followed

    def _ask_replicas(self) -> None:
        replication = self.replication
        # What a broker stored before it became a slave is safe nowhere any more.
        reach = replication.in_reach if replication.asks_replicas else None
        self.flush_waiter.in_reach = reach if replication.is_master else _nobody
        self.admission.slave_of = None if replication.is_master else replication.master or ""


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
