"""The composition root: builds what the broker is made of, starts and stops it in order.

Owns the store and everything that lives as long as it does. What never breaks: the order at a stop -
held pulls are let go, requests finish, threads end, the eventfd's reader goes, the store closes last.
Built by server.py inside the running event loop; app.py and the routes take their parts from here.
"""

from __future__ import annotations

import asyncio
import json
import logging

from ha_replicator.nameserver import BrokerRegistration, QueueData, RouteTables
from ha_replicator.nameserver.route_tables import SCAN_EVERY_S
from ingest_api.ack_wait import AckWait
from ingest_api.admission import Admission
from ingest_api.arrivals import Arrivals
from ingest_api.body import BodyReader, Deadlines
from ingest_api.bulk_pool import BulkPool, ReadPool
from ingest_api.connection_watch import ConnectionWatch
from ingest_api.leases import Leases
from ingest_api.metrics import BrokerMetrics
from ingest_api.progress import StoreProgress
from ingest_api.pull import PullPath
from ingest_api.refusals import Refusals
from ingest_api.send import SendPath
from ingest_api.settings import Settings
from store_native import Store

log = logging.getLogger("lakemq.broker")

_DISK_EVERY_S = 2.0
CONTROL_BODY_BYTES = 8 << 20
"""Bodies of administrative requests; a group with 100,000 queues commits in less."""


class Broker:
    """A serving broker.

    Args:
        settings: Checked settings.
        address: Where the API answers, ``http://host:port``.
        store_host: IPv4 or IPv6 address and port that go into offset message ids.

    Raises:
        LakeMQError: The store does not open (STORE_LOCKED, DATA_CORRUPT, ...).
    """

    def __init__(self, settings: Settings, address: str, store_host: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        limits = settings.limits
        self.settings = settings
        self.address = address
        self.stopped = False
        self.store = open_store(settings, store_host)
        self.metrics = BrokerMetrics(group_exists=lambda group: self.store.group_json(group) is not None)
        self.tables = RouteTables()
        self.leases = Leases(self.store)
        self.progress = StoreProgress(self.store, loop)
        self.ack = AckWait(
            self.store,
            self.progress,
            loop,
            sync_flush=settings.store.flush == "sync",
            timeout_s=limits.sync_flush_timeout_s,
        )
        self.arrivals = Arrivals(self.store, self.progress, loop)
        self.admission = Admission(limits, self.metrics)
        self.connections = ConnectionWatch(settings.http)
        self.bulk = BulkPool(limits.bulk_threads, self.admission.check_queue_wait)
        self.reads = ReadPool()
        self.refusals = Refusals(self.metrics, settings.log.slow_request_ms)
        self._deadlines = deadlines = Deadlines(limits.body_timeout_s, loop.time, loop.call_at, loop)
        self.control_bodies = BodyReader(deadlines, self.admission, CONTROL_BODY_BYTES)
        self.send = SendPath(
            self.store,
            self.ack,
            self.admission,
            BodyReader(deadlines, self.admission, limits.max_request_bytes),
            self.bulk,
            self.metrics,
            self.refusals,
            limits,
        )
        self.pull = PullPath(
            self.store, self.arrivals, self.reads, self.metrics, self.refusals, limits.max_wait_ms
        )
        self._register_self()
        self._housekeeping = loop.create_task(self._keep_house())

    async def settle(self, end_offset: int) -> bool:
        """Waits until an administrative record is flushed and dispatched; False after the time-out."""
        waiting = self.ack.changed(end_offset)
        return True if waiting is None else await waiting

    def refresh_topic(self, topic: str) -> None:
        """Brings one topic of this broker up to date in the name server's tables.

        Sends create topics too, so the tables are refreshed when somebody asks, not when it happens.
        """
        config = self.store.topic_json(topic)
        self.tables.put_topic(
            self.settings.broker_name, topic, None if config is None else _queue_data(json.loads(config))
        )

    def begin_stop(self) -> None:
        """Lets held pulls go and refuses new sends; called before connections are waited for.

        Half of the time of a stop is for what is still coming or still being read, the rest for telling so.
        """
        within_s = self.settings.http.stop_timeout_s / 2
        self._deadlines.stop(within_s)
        self.connections.stop(within_s)
        self.admission.closing = True
        self.arrivals.close()

    async def stop(self) -> None:
        """Ends threads and closes the store; called once, after the last request."""
        self.stopped = True
        self.begin_stop()
        self._housekeeping.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.bulk.close)
        await loop.run_in_executor(None, self.reads.close)
        self.ack.close()
        self.progress.close()
        await loop.run_in_executor(None, self.store.close)
        log.info("store closed", extra={"fields": {"path": self.settings.store.path}})

    def _register_self(self) -> None:
        topics = {config["topic"]: _queue_data(config) for config in json.loads(self.store.topics_json())}
        self.tables.register(
            BrokerRegistration(
                cluster=self.settings.cluster,
                broker_name=self.settings.broker_name,
                broker_id=0,
                address=self.address,
                data_version="",
                topics=topics,
            ),
            pinned=True,
        )

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
            if loop.time() >= next_scan:
                next_scan = loop.time() + SCAN_EVERY_S
                for name, broker_id in self.tables.expire():
                    log.warning(
                        "broker gave no sign of life", extra={"fields": {"broker": name, "id": broker_id}}
                    )
            await asyncio.sleep(_DISK_EVERY_S)


def open_store(settings: Settings, store_host: tuple[str, int]) -> Store:
    """Opens the store as the settings say; recovery runs in here."""
    wanted = settings.store
    optional = {"delay_levels": wanted.delay_levels} if wanted.delay_levels else {}
    return Store(
        wanted.path,
        broker_name=settings.broker_name,
        cluster=settings.cluster,
        store_host=store_host,
        flush=wanted.flush,
        flush_interval_ms=wanted.flush_interval_ms,
        commitlog_file_size=wanted.commitlog_file_size,
        consumequeue_file_entries=wanted.consumequeue_file_entries,
        index_slots=wanted.index_slots,
        index_entries=wanted.index_entries,
        auto_create_topics=wanted.auto_create_topics,
        default_queue_nums=wanted.default_queue_nums,
        retention_hours=wanted.retention_hours,
        delete_when_hour=wanted.delete_when_hour,
        max_message_bytes=settings.limits.max_message_bytes,
        checkpoint_interval_ms=wanted.checkpoint_interval_ms,
        idempotence_max_keys=wanted.idempotence_max_keys,
        idempotence_hours=wanted.idempotence_hours,
        faults=wanted.faults,
        **optional,
    )


def _queue_data(config: dict[str, object]) -> QueueData:
    return QueueData(
        int(str(config["read_queue_nums"])), int(str(config["write_queue_nums"])), int(str(config["perm"]))
    )
